package gate

import (
	"fmt"
	"slices"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/gate/shell"
)

// finding is what one layer says.
type finding struct {
	layer      string
	rule       string
	digest     caisson.Digest
	ruling     caisson.Ruling
	reason     string
	again      bool
	otherInput bool
	source     *rule // nil where no written rule speaks
}

// matter is a call with all that rules look at.
type matter struct {
	call     caisson.Call
	subject  caisson.Subject
	trusted  []string
	readings []shell.Reading // of lines, then of programs
	uses     []use
	opaque   bool
	vars     map[string]any // made when the first expression asks
}

func (p *Policy) matter(call caisson.Call, subject caisson.Subject) *matter {
	if call.Effect == "" {
		call.Effect = caisson.EffectUnsafe
	}
	if call.Reach == "" {
		call.Reach = caisson.ReachOutside
	}
	m := &matter{call: call, subject: subject, trusted: p.trusted}
	for _, line := range call.Facets.Lines {
		m.readings = append(m.readings, shell.Read(line))
	}
	for _, argv := range call.Facets.Argv {
		m.readings = append(m.readings, shell.ReadArgv(argv))
	}
	m.opaque = slices.ContainsFunc(m.readings, func(r shell.Reading) bool { return len(r.Opaque) > 0 })
	m.uses = uses(call, subject.Workspace, m.readings)
	return m
}

// Judge says what policy says of a call.
func (p *Policy) Judge(call caisson.Call, subject caisson.Subject) caisson.Verdict {
	verdict, _ := p.decide(p.matter(call, subject))
	return verdict
}

// decide returns the verdict, and what each layer found, in their order.
func (p *Policy) decide(m *matter) (caisson.Verdict, []finding) {
	var found []finding
	if f := floor(m.readings, m.uses); f != nil {
		found = append(found, *f)
	}
	for _, l := range p.layers {
		f := l.judge(m)
		if l.name == LayerUser {
			f = stricter(f, p.userDefault(f, m))
		}
		if f != nil {
			found = append(found, *f)
		}
	}
	top := found[len(found)-1] // the user's layer always speaks
	for _, f := range found {
		if f.ruling.Stricter(top.ruling) {
			top = f
		}
	}
	if top.ruling == caisson.ReviewIt {
		again := slices.IndexFunc(found, func(f finding) bool { return f.ruling == caisson.ReviewIt && f.again })
		switch grant := p.granted(m); {
		case again >= 0: // it decides whether an old approval stands
			top = found[again]
		case grant != nil:
			top = finding{layer: LayerGrant, rule: grant.ID, ruling: caisson.Allow, reason: "granted with review " + string(grant.Review)}
		}
	}
	return p.verdict(top), found
}

// userDefault is what follows the user's rules. A rule that matched for certain
// keeps it from being asked.
func (p *Policy) userDefault(f *finding, m *matter) *finding {
	if f != nil && f.source != nil {
		return nil
	}
	byPreset := p.byPreset(m.call, m.subject)
	return &byPreset
}

func stricter(a, b *finding) *finding {
	if a == nil || b != nil && b.ruling.Stricter(a.ruling) {
		return b
	}
	return a
}

// judge returns what the first matching rule says; nil where none matches. A
// deny or review that could match, if only the line could be read, is a review
// unless a later rule is stricter.
func (l layer) judge(m *matter) *finding {
	var perhaps *finding
	for _, r := range l.rules {
		switch r.matches(m) {
		case yes:
			return stricter(r.finding(l.name), perhaps)
		case no:
		case unsure:
			if perhaps == nil && mayLeave(m.call, m.subject) {
				perhaps = &finding{
					layer: l.name, rule: r.Name, digest: r.digest, ruling: caisson.ReviewIt, again: r.Again, otherInput: true,
					reason: fmt.Sprintf("it cannot be read for certain (%s), and this rule could apply", m.opaqueReason()),
				}
			}
		}
	}
	return perhaps
}

func (m *matter) opaqueReason() string {
	for _, r := range m.readings {
		if len(r.Opaque) > 0 {
			return r.Opaque[0]
		}
	}
	return "unknown"
}

func (r *rule) finding(layer string) *finding {
	return &finding{
		layer: layer, rule: r.Name, digest: r.digest, ruling: r.Verdict, reason: r.Reason,
		again: r.Again, otherInput: r.byInput(), source: r,
	}
}

// matches tells whether a rule applies. unsure comes only from what is opaque,
// and only for deny and review.
func (r *rule) matches(m *matter) truth {
	if len(r.tools) > 0 && !slices.ContainsFunc(r.tools, func(p toolPattern) bool { return p.match(m.call.Tool) }) {
		return no
	}
	if len(r.Effects) > 0 && !slices.Contains(r.Effects, string(m.call.Effect)) {
		return no
	}
	command := r.matchesCommand(m)
	if command == no {
		return no
	}
	file := r.matchesPath(m)
	if file == no {
		return no
	}
	when := r.matchesWhen(m)
	if when == no {
		return no
	}
	return max(command, file, when) // unsure is the largest
}

func (r *rule) matchesCommand(m *matter) truth {
	switch {
	case len(r.commands) == 0:
		return yes
	case len(m.readings) == 0:
		return no
	case r.Verdict == caisson.Allow:
		return r.allowsCommands(m)
	case slices.ContainsFunc(m.readings, func(rd shell.Reading) bool { return caught(r.commands, rd) }):
		return yes
	case m.opaque:
		return unsure
	default:
		return no
	}
}

func (r *rule) allowsCommands(m *matter) truth {
	for _, reading := range m.readings {
		if !covered(r.commands, reading, m.trusted) {
			return no
		}
		if len(r.paths) == 0 && writes(reading) {
			return no
		}
	}
	return yes
}

// writes tells whether a reading redirects into a file. A pattern that allows a
// command does not allow that; path says where it may.
func writes(r shell.Reading) bool {
	return slices.ContainsFunc(r.Targets, func(t shell.Target) bool { return t.Write })
}

func (r *rule) matchesPath(m *matter) truth {
	switch {
	case len(r.paths) == 0:
		return yes
	case r.Verdict == caisson.Allow:
		if m.opaque || !r.pathsCovered(m.uses, m.subject.Workspace) {
			return no
		}
		return yes
	case r.pathsCaught(m.uses, m.subject.Workspace):
		return yes
	case m.opaque:
		return unsure
	default:
		return no
	}
}

func (r *rule) matchesWhen(m *matter) truth {
	if r.when == nil {
		return yes
	}
	if m.vars == nil {
		m.vars = activation(m.call, m.subject, m.readings, m.uses)
	}
	result, _ := r.when.eval(m.vars)
	blind := m.opaque && r.when.lines
	switch {
	case r.Verdict == caisson.Allow:
		if result != yes || blind {
			return no
		}
		return yes
	case result == no && blind:
		return unsure
	case result == no:
		return no
	default:
		return yes
	}
}

// granted returns the grant that covers the call, if there is one.
func (p *Policy) granted(m *matter) *caisson.Grant {
	for i, g := range m.subject.Grants {
		if g.Revoked || g.Run != m.subject.Run || g.Tool != m.call.Tool || g.PolicyDigest != p.digest || g.PolicyDigest == "" {
			continue
		}
		switch {
		case g.InputDigest != "" && g.Command != "":
			continue
		case g.InputDigest != "":
			if g.InputDigest != m.call.InputDigest {
				continue
			}
		case g.Command == "" || !m.grantCovers(g.Command):
			continue
		}
		return &m.subject.Grants[i]
	}
	return nil
}

func (m *matter) grantCovers(command string) bool {
	pattern, err := parseCommandPattern(command)
	if err != nil || len(m.readings) == 0 {
		return false
	}
	for _, r := range m.readings {
		if !covered([]commandPattern{pattern}, r, m.trusted) || writes(r) {
			return false
		}
	}
	return true
}

// verdict gives a finding its words.
func (p *Policy) verdict(f finding) caisson.Verdict {
	v := caisson.Verdict{
		Ruling: f.ruling, Layer: f.layer, Rule: f.rule, RuleDigest: f.digest, Again: f.again,
		PolicyDigest: p.digest,
	}
	if v.RuleDigest == "" {
		v.RuleDigest = caisson.DigestOf([]byte(f.layer + "\x00" + f.rule))
	}
	unasked := p.preset == Unattended && v.Ruling == caisson.ReviewIt
	if unasked {
		v.Ruling = caisson.Deny
	}
	v.Reason = words(f, unasked)
	return v
}
