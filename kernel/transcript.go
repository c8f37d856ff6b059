package kernel

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
)

// transcript is what the model is sent: each turn's own input, its answer as it
// came, and one result for each of its calls, in their order.
func (d *driver) transcript(input []caisson.Message) []caisson.Message {
	var messages []caisson.Message
	for _, turn := range d.turns {
		if turn.State != caisson.TurnAnswered {
			continue
		}
		messages = append(messages, turn.Input...)
		messages = append(messages, turn.Answer.Message)
		if results := d.results(turn); len(results) > 0 {
			messages = append(messages, caisson.Message{Role: caisson.RoleTool, Parts: results})
		}
	}
	return append(messages, input...)
}

func (d *driver) results(turn caisson.Turn) []caisson.Part {
	var results []caisson.Part
	for i, call := range callsOf(turn) {
		record := d.calls[caisson.NewCallID(d.drive.Run, turn.N, i+1)]
		results = append(results, caisson.Part{
			Kind: caisson.PartResult, ProviderID: call.ProviderID, Tool: call.Tool,
			Text: resultText(record), Failed: record.State.Outcome() != caisson.OutcomeDone,
		})
	}
	return results
}

// firstInput is what begins the run: the workspace's instructions and the prompt.
func (d *driver) firstInput() []caisson.Message {
	var parts []caisson.Part
	for _, one := range d.o.Instructions {
		if text := strings.TrimSpace(one.Text); text != "" {
			parts = append(parts, caisson.Part{Kind: caisson.PartText, Text: fmt.Sprintf("Instructions of this workspace, from %s:\n\n%s", one.Name, text)})
		}
	}
	parts = append(parts, caisson.Part{Kind: caisson.PartText, Text: d.spec.Prompt})
	return []caisson.Message{{Role: caisson.RoleUser, Parts: parts}}
}

// input is what begins the next turn. An answer that is asked for again has
// the same, so that the transcript does not depend on how often it was cut.
func (d *driver) input() []caisson.Message {
	last := d.last()
	switch {
	case last == nil:
		return d.firstInput()
	case last.State == caisson.TurnAbandoned:
		return last.Input
	case last.Answer.Finish == caisson.FinishLength && len(callsOf(*last)) == 0:
		return []caisson.Message{note(goOn)}
	default:
		return nil
	}
}

const goOn = "Note from Caisson: your answer was cut at its bound. Go on where it ended."

// noteKind is a note to the model that changes what it may do from there on.
type noteKind string

const (
	noteFinish noteKind = "Note from Caisson: most of this run's budget is used (%s). Finish now; from here on only tools that read are left."
	noteClose  noteKind = "Note from Caisson: this run's budget is used up (%s). Give your closing answer now; no tools are left."
)

func (k noteKind) text(why caisson.StopReason) string { return fmt.Sprintf(string(k), why) }

func note(text string) caisson.Message {
	return caisson.Message{Role: caisson.RoleUser, Parts: []caisson.Part{{Kind: caisson.PartText, Text: text}}}
}

// bounds are the stop reasons that notes name.
var bounds = [...]caisson.StopReason{
	caisson.StopTokenBudget, caisson.StopCostBudget, caisson.StopDeadline,
	caisson.StopMaxTurns, caisson.StopMaxCalls, caisson.StopOutputBudget,
}

// told tells whether the model was given a note of that kind, and why. The
// record says so, and not this process, so a resume knows too.
func (d *driver) told(kind noteKind) (caisson.StopReason, bool) {
	for i := len(d.turns) - 1; i >= 0; i-- {
		if why, found := noted(d.turns[i].Input, kind); found {
			return why, true
		}
	}
	return "", false
}

func noted(input []caisson.Message, kind noteKind) (caisson.StopReason, bool) {
	for _, message := range input {
		if len(message.Parts) != 1 {
			continue
		}
		for _, why := range bounds {
			if message.Parts[0].Text == kind.text(why) {
				return why, true
			}
		}
	}
	return "", false
}

// toolsNow are the tools that are left.
func (d *driver) toolsNow() map[string]caisson.Tool {
	if _, closed := d.told(noteClose); closed {
		return nil
	}
	if _, finishing := d.told(noteFinish); finishing {
		return reading(d.o.Tools)
	}
	return d.o.Tools
}

func reading(tools map[string]caisson.Tool) map[string]caisson.Tool {
	left := map[string]caisson.Tool{}
	for name, tool := range tools {
		if tool.Spec().Effect == caisson.EffectRead {
			left[name] = tool
		}
	}
	return left
}

// shown are tools as the model sees them, always in one order, as a provider's
// cache holds only what is the same from its beginning.
func shown(tools map[string]caisson.Tool) []caisson.ModelTool {
	list := make([]caisson.ModelTool, 0, len(tools))
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		spec := tools[name].Spec()
		list = append(list, caisson.ModelTool{Name: name, Description: spec.Description, Schema: spec.Schema})
	}
	return list
}

// lastWords is what an answer says.
func lastWords(turn caisson.Turn) string {
	var said []string
	for _, part := range turn.Answer.Message.Parts {
		if part.Kind == caisson.PartText {
			said = append(said, part.Text)
		}
	}
	return strings.Join(said, "\n")
}
