package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/sandbox/egress"
	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

// networkName is the tool's name in calls and policy.
const networkName = "network"

const networkSchema = `{
	"type": "object",
	"properties": {
		"host": {"type": "string", "minLength": 1, "maxLength": 253, "description": "The host's name in its canonical form."},
		"port": {"type": "integer", "minimum": 1, "maximum": 65535}
	},
	"required": ["host", "port"],
	"additionalProperties": false
}`

type networkInput struct {
	Host string `json:"host"`
	Port uint16 `json:"port"`
}

func targetOf(input json.RawMessage) (rule.Target, error) {
	var in networkInput
	if err := json.Unmarshal(input, &in); err != nil {
		return rule.Target{}, fmt.Errorf("read target: %w", err)
	}
	host, err := rule.ParseHost(in.Host)
	switch {
	case err != nil:
		return rule.Target{}, err
	case host.Name == "" || host.Local():
		return rule.Target{}, fmt.Errorf("%s can only be listed in the config", host)
	case host.Name != in.Host:
		return rule.Target{}, fmt.Errorf("the name is written %s", host)
	}
	return rule.Target{Host: host, Port: in.Port}, nil
}

// networkTool opens one host and port to a run's sandbox. No model asks for it:
// programs inside do, by connecting. It implements caisson.Tool.
type networkTool struct{ proxy *egress.Proxy }

// Spec implements caisson.Tool.
func (networkTool) Spec() caisson.ToolSpec {
	return caisson.ToolSpec{
		Ref: caisson.ToolRef{Name: networkName}, Description: "Reach a host and port from inside the sandbox, until the run ends.",
		Schema: json.RawMessage(networkSchema), Effect: caisson.EffectIdempotent, Reach: caisson.ReachOutside,
	}
}

// Facets implements caisson.Tool. Only a name in its canonical form is a
// prepared value, so that policy, person and proxy speak of one host.
func (networkTool) Facets(input json.RawMessage) (caisson.Facets, error) {
	_, err := targetOf(input)
	return caisson.Facets{}, err
}

// Preview implements caisson.Previewer.
func (networkTool) Preview(_ context.Context, call caisson.Call) (string, error) {
	t, err := targetOf(call.Input)
	return fmt.Sprintf("A program inside wants to connect to %s. If you approve, everything in this run's sandbox may, until the run ends.", t), err
}

// Hold implements caisson.Tool.
func (n networkTool) Hold(_ context.Context, call caisson.Call, _ caisson.EffectID) (caisson.Executor, error) {
	t, err := targetOf(call.Input)
	return opening{n.proxy, t}, err
}

// opening is a target that is about to be opened. It ends with this process.
type opening struct {
	proxy  *egress.Proxy
	target rule.Target
}

func (opening) Identity() *caisson.ProcessIdentity { return nil }

func (o opening) Open(context.Context) (caisson.Result, error) {
	o.proxy.Approve(o.target)
	return caisson.Result{Text: o.target.String() + " may be reached.", Summary: o.target.String() + " is open"}, nil
}

func (opening) Drop() {}

// Bounds of what programs inside can have asked: people read it, and each is a
// call in the record.
const (
	maxAsking = 8   // at a time
	maxAsked  = 100 // in one life of a run
)

// asks are the targets that were asked about in this life of the run.
type asks struct {
	mu    sync.Mutex
	at    map[rule.Target]*asked
	count int
	open  int
}

type asked struct {
	done chan struct{} // closed when err is what it is
	err  error
	gone bool // nobody has said anything: it can be asked again
}

// ask has a target judged as a call, and waits until ctx ends. A question that
// is open then stays so while the call that it came from is at work.
func (n *network) ask(ctx context.Context, t rule.Target) error {
	n.asks.mu.Lock()
	a := n.asks.at[t]
	if a == nil || a.gone {
		switch {
		case n.asks.open >= maxAsking, n.asks.count >= maxAsked:
			n.asks.mu.Unlock()
			return errors.New("too many hosts are asked about")
		case n.ctx.Err() != nil:
			n.asks.mu.Unlock()
			return errors.New("the run is ending")
		}
		if n.asks.at == nil {
			n.asks.at = map[rule.Target]*asked{}
		}
		a = &asked{done: make(chan struct{})}
		n.asks.at[t] = a
		n.asks.open++
		n.asks.count++
		n.work.Go(func() { n.judge(t, a) })
	}
	n.asks.mu.Unlock()
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return errors.New("a person is asked and has not answered yet; try again later")
	}
}

func (n *network) judge(t rule.Target, a *asked) {
	record, err := n.settle(t)
	n.asks.mu.Lock()
	defer n.asks.mu.Unlock()
	defer close(a.done)
	n.asks.open--
	outcome := record.State.Outcome()
	switch {
	case err != nil:
		a.err, a.gone = errors.New("it could not be asked about"), true
	case outcome == caisson.OutcomeDone:
		// A person may have opened another host in its place.
		if given, err := targetOf(record.Call.Input); err != nil || given != t {
			a.err = fmt.Errorf("a person opened %s instead", given)
		}
	case outcome == caisson.OutcomeRefused:
		a.err = errors.New(refusalText(record))
		a.gone = record.Result != nil && caisson.CodeOf(resultError(record)) == caisson.CodeReviewExpired
	default:
		a.err, a.gone = errors.New("the call that it came from has ended"), true
	}
}

func refusalText(record caisson.CallRecord) string {
	if record.Result == nil || record.Result.Text == "" {
		return "it was refused"
	}
	return record.Result.Text
}

// settle takes the call through the run's door. It is a call of the one at work
// inside: it ends with that one, and never outlives the run.
func (n *network) settle(t rule.Target) (caisson.CallRecord, error) {
	n.mu.Lock()
	door := n.door
	n.mu.Unlock()
	nested, err := n.atWork(door)
	if err != nil {
		return caisson.CallRecord{}, err
	}
	input, err := json.Marshal(networkInput{Host: t.Host.Name, Port: t.Port})
	if err != nil {
		return caisson.CallRecord{}, err
	}
	settled, err := nested.Settle(n.ctx, []airlock.Request{{Name: networkName, Tool: networkTool{n.proxy}, Input: string(input)}})
	if len(settled.Records) == 0 {
		return caisson.CallRecord{}, errors.Join(err, errors.New("there is no record of it"))
	}
	return settled.Records[0], nil
}

// atWork is the door of calls that the one at work inside makes. In a sandbox
// that is kept open that is one of a session in it.
func (n *network) atWork(own *airlock.Door) (*airlock.Nested, error) {
	var doors []*airlock.Door
	if own != nil {
		doors = append(doors, own)
	}
	if n.s.served != nil {
		doors = append(doors, n.s.served.doors()...)
	}
	for _, door := range doors {
		if at := door.Outermost(); len(at) > 0 {
			return door.Nested(at[0])
		}
	}
	return nil, errors.New("nothing is at work")
}

// restore opens what was opened in an earlier life of the run, where policy does
// not deny it today, for as long as unknown hosts are asked about.
func (n *network) restore(ctx context.Context) error {
	calls, err := n.s.host.Ledger.Calls(ctx, n.s.run.ID)
	if err != nil {
		return err
	}
	for _, record := range calls {
		if record.Call.Tool != (caisson.ToolRef{Name: networkName}) || record.State.Outcome() != caisson.OutcomeDone {
			continue
		}
		t, err := targetOf(record.Call.Input)
		if err == nil && n.s.policy.Judge(record.Call, caisson.Subject{Run: n.s.run.ID, Workspace: n.s.workDir()}).Ruling != caisson.Deny {
			n.proxy.Approve(t)
		}
	}
	return nil
}
