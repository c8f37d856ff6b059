package host

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/sandbox/egress"
	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

// lookEvery is how often the person's config is looked at for other rules. A
// file is looked at and not watched, as it may be a link to one elsewhere.
const lookEvery = time.Second

// network is the way out of a session's sandbox, and its record.
type network struct {
	s     *session
	proxy *egress.Proxy
	ctx   context.Context //nolint:containedctx // the network's life
	stop  context.CancelFunc
	work  sync.WaitGroup
	asks  asks

	mu    sync.Mutex
	door  *airlock.Door // nil until the session has one: nothing runs inside before
	last  map[string]egress.Count
	fault error // the first event that could not be written
}

// newNetwork returns the way out that the settings give the run, or nil where
// there is none.
func (s *session) newNetwork(ctx context.Context) (*network, error) {
	rules, open, err := s.networkRules(s.config)
	if err != nil || !open {
		return nil, err
	}
	n := &network{s: s, last: map[string]egress.Count{}}
	n.ctx, n.stop = context.WithCancel(context.WithoutCancel(ctx))
	n.proxy = egress.New(egress.Options{Rules: rules, Unknown: n.unknown(s.config), Refused: n.refused, Credentials: s.host.credentials(s.config)})
	err = n.restore(ctx)
	if err == nil {
		err = n.opened(ctx, s.config, rules)
	}
	if err != nil {
		n.stop()
		return nil, err
	}
	return n, nil
}

// unknown is how a host that is not listed is asked about; nil: it is refused.
func (n *network) unknown(c config.Config) func(context.Context, rule.Target) error {
	if c.NetworkUnknown == config.UnknownReview {
		return n.ask
	}
	return nil
}

// networkRules are those of the config and of the run. open is whether there is
// a way out at all.
func (s *session) networkRules(c config.Config) (rules []rule.Rule, open bool, err error) {
	if slices.Contains(s.run.Spec.Network, config.NoNetwork) {
		return nil, false, nil
	}
	rules = slices.Clone(c.Network)
	for _, text := range s.run.Spec.Network {
		r, err := rule.Parse(text)
		if err != nil {
			return nil, false, caisson.Errorf(caisson.CodeConfigInvalid, "read the hosts of run %s: %w", s.run.ID, err)
		}
		rules = append(rules, r)
	}
	return rules, len(rules) > 0 || c.NetworkUnknown == config.UnknownReview, nil
}

// credentials reads the secrets that sandboxes use and do not see.
func (h *Host) credentials(c config.Config) []egress.Credential {
	var out []egress.Credential
	for _, one := range c.Credentials {
		out = append(out, egress.Credential{Env: one.Env, Host: one.Host, Header: one.Header, Value: h.env(one.Env)})
	}
	return out
}

// give makes the network the way out of a sandbox. A variable that holds a
// credential is not lent beside it.
func (n *network) give(spec *caisson.SandboxSpec) {
	placeholders := n.proxy.Env()
	spec.Env = slices.DeleteFunc(spec.Env, func(entry string) bool {
		return slices.ContainsFunc(placeholders, func(p string) bool { return nameOf(p) == nameOf(entry) })
	})
	spec.Env = append(spec.Env, placeholders...)
	spec.Egress = n.proxy
}

func nameOf(entry string) string {
	name, _, _ := strings.Cut(entry, "=")
	return name
}

// run begins to ask and to look for other rules, now that the session has a door.
func (n *network) run(door *airlock.Door) {
	n.mu.Lock()
	n.door = door
	n.mu.Unlock()
	n.work.Go(n.follow)
}

// follow puts into force what the person changes in their config. A file that
// is not valid changes nothing, and is noted.
func (n *network) follow() {
	read := func() []byte {
		raw, err := readOwn(n.s.host.Paths.UserConfig())
		if err != nil {
			return []byte(err.Error())
		}
		return raw
	}
	seen := read()
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-every.C:
		}
		if now := read(); !bytes.Equal(now, seen) {
			seen = now
			n.keep(n.reload(n.ctx))
		}
	}
}

func (n *network) reload(ctx context.Context) error {
	c, err := n.s.host.configWith(n.s.repo)
	if err != nil {
		return n.s.note(ctx, "the network stays as it is: "+caisson.AsError(err).Error())
	}
	rules, _, err := n.s.networkRules(c)
	if err != nil {
		return err
	}
	// Recorded before it holds: what is open is never more than the record says.
	if err := n.opened(ctx, c, rules); err != nil {
		return err
	}
	n.proxy.Update(rules, n.unknown(c))
	return nil
}

// opened records what may be reached from now on.
func (n *network) opened(ctx context.Context, c config.Config, rules []rule.Rule) error {
	texts := make([]string, len(rules))
	for i, r := range rules {
		texts[i] = r.String()
	}
	return n.s.host.Ledger.Append(ctx, n.s.drive, caisson.EventNetworkOpened, map[string]any{
		"hosts": texts, "unknown": c.NetworkUnknown,
	})
}

// refused records a refusal. It is written before the program is told.
func (n *network) refused(r egress.Refusal) {
	n.keep(n.s.host.Ledger.Append(n.ctx, n.s.drive, caisson.EventNetworkRefused, r))
}

func (n *network) keep(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fault == nil && n.ctx.Err() == nil {
		n.fault = err
	}
}

// flush records what happened since it last did. A record that could not be
// written meanwhile is its error.
func (n *network) flush(ctx context.Context) error {
	if n == nil {
		return nil
	}
	var since []egress.Count
	n.mu.Lock()
	fault := n.fault
	for _, count := range n.proxy.Counts() {
		before := n.last[count.Target]
		if more := minus(count, before); more.Connections > 0 || more.Up > 0 || more.Down > 0 || len(more.Refused) > 0 {
			since = append(since, more)
		}
		n.last[count.Target] = count
	}
	n.mu.Unlock()
	if len(since) == 0 {
		return fault
	}
	return errors.Join(fault, n.s.host.Ledger.Append(ctx, n.s.drive, caisson.EventNetworkUsed, map[string]any{"targets": since}))
}

func minus(now, before egress.Count) egress.Count {
	out := egress.Count{
		Target: now.Target, Connections: now.Connections - before.Connections, Up: now.Up - before.Up, Down: now.Down - before.Down,
	}
	for reason, count := range now.Refused {
		if more := count - before.Refused[reason]; more > 0 {
			if out.Refused == nil {
				out.Refused = map[egress.Reason]int64{}
			}
			out.Refused[reason] = more
		}
	}
	return out
}

// close ends what the network does, after its sandbox has ended.
func (n *network) close(ctx context.Context) error {
	if n == nil {
		return nil
	}
	n.stop()
	n.work.Wait()
	return n.flush(ctx)
}
