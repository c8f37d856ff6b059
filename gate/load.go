package gate

import (
	"errors"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/strictyaml"
)

// version is part of every policy digest. It rises with each change of this
// package that can change a verdict of the same rules.
const version = 2

// File is a policy file that somebody has read.
type File struct {
	Name string // for messages
	Data []byte
}

// Sources are what a policy is made from. Files of a layer are read in order,
// as if they were one.
type Sources struct {
	// User's rules may say anything.
	User []File
	// Repository's rules may only deny or ask. They come from the base commit,
	// never from a tree that an agent writes.
	Repository []File
	// Parent's rules bound a child run. No match in them is no objection.
	Parent []File
	// Preset is supervised, sandboxed or unattended; empty means sandboxed.
	Preset string
	// Tools are all tools that there are. An allow rule that names none of
	// them is an error. Nil: they are not known, and names are not looked at.
	Tools []caisson.ToolSpec
	// Verbs are what the user's config says of the verbs that it declares. It
	// holds where no rule speaks.
	Verbs map[string]caisson.Ruling
}

// Names of the layers in a verdict.
const (
	LayerFloor      = "floor"
	LayerRepository = "repository"
	LayerParent     = "parent"
	LayerUser       = "user"
	LayerReadOnly   = "read-only"
	LayerGrant      = "grant"
	LayerPreset     = "preset"
)

// Policy judges calls. It implements [caisson.Judge].
type Policy struct {
	preset     Preset
	layers     []layer // repository, parent, user
	readOnly   []string
	trusted    []string
	verbs      map[string]caisson.Ruling
	digest     caisson.Digest
	loadedFrom []string
}

type layer struct {
	name  string
	rules []*rule
}

var _ caisson.Judge = (*Policy)(nil)

// trustedDirs are where programs are, unless policy says otherwise: an agent
// cannot write there.
var trustedDirs = []string{"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"}

// Load reads a policy. An error has CodePolicyInvalid, or CodeConfigWidens for
// what a repository may not say, and names file and line.
func Load(src Sources) (*Policy, error) {
	preset := Preset(src.Preset)
	if preset == "" {
		preset = Sandboxed
	}
	if !slices.Contains(Presets(), preset) {
		return nil, caisson.Errorf(caisson.CodePolicyInvalid, "there is no preset %q", src.Preset).
			WithHint("Use supervised, sandboxed or unattended.")
	}
	p := &Policy{preset: preset, trusted: trustedDirs, verbs: src.Verbs}
	env, err := newConditions()
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeInternal, "prepare the expression language: %w", err)
	}
	for _, from := range []struct {
		name  string
		files []File
	}{{LayerRepository, src.Repository}, {LayerParent, src.Parent}, {LayerUser, src.User}} {
		l := layer{name: from.name}
		for _, file := range from.files {
			if err := p.readFile(file, &l, env, src.Tools); err != nil {
				return nil, invalid(err)
			}
			p.loadedFrom = append(p.loadedFrom, file.Name)
		}
		p.layers = append(p.layers, l)
	}
	if p.digest, err = p.sum(); err != nil {
		return nil, caisson.Errorf(caisson.CodeInternal, "sum the policy: %w", err)
	}
	return p, nil
}

func invalid(err error) error {
	var e *caisson.Error
	if errors.As(err, &e) {
		return e
	}
	out := caisson.Errorf(caisson.CodePolicyInvalid, "%w", err)
	var at *strictyaml.Error
	if errors.As(err, &at) {
		out = out.With("file", at.File).With("line", at.Line)
	}
	return out
}

func (p *Policy) readFile(file File, l *layer, env *conditions, tools []caisson.ToolSpec) error {
	root, err := strictyaml.Parse(file.Name, file.Data)
	if err != nil {
		return err
	}
	fields, err := root.Fields(keysOf("")...)
	if err != nil {
		return err
	}
	for _, f := range fields {
		switch f.Name {
		case "version":
			n, err := f.Value.Int()
			if err != nil {
				return err
			}
			if n != 1 {
				return f.Value.Errorf("this Caisson reads version 1")
			}
		case "rules":
			items, err := f.Value.List()
			if err != nil {
				return err
			}
			for _, item := range items {
				r, err := readRule(item, l.name, env, tools)
				if err != nil {
					return err
				}
				if err := l.add(r, item); err != nil {
					return err
				}
			}
		case "read_only_servers", "trusted_dirs":
			if l.name != LayerUser {
				return widens(f.Value, f.Name)
			}
			if err := p.readWidening(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// add keeps rule names unique, because refusals and grants speak of them.
func (l *layer) add(r *rule, at strictyaml.Value) error {
	for _, other := range l.rules {
		if other.Name == r.Name && !r.unnamed {
			return at.Errorf("a rule named %q is in %s:%d", r.Name, other.file, other.line)
		}
	}
	l.rules = append(l.rules, r)
	return nil
}

func (p *Policy) readWidening(f strictyaml.Field) error {
	values, err := f.Value.Strings()
	if err != nil {
		return err
	}
	if f.Name == "read_only_servers" {
		p.readOnly = append(slices.Clone(p.readOnly), values...)
		return nil
	}
	for _, dir := range values {
		if !strings.HasPrefix(dir, "/") || cleaned(dir) != dir {
			return f.Value.Errorf("%q is not a clean absolute directory", dir)
		}
	}
	p.trusted = append(slices.Clone(p.trusted), values...)
	return nil
}

func widens(v strictyaml.Value, what string) error {
	return caisson.Errorf(caisson.CodeConfigWidens, "%w", v.Errorf("%s may be set only in the user's policy", what)).
		With("file", v.File).With("line", v.Line())
}

// PolicyDigest returns the SHA-256 over everything that influences verdicts.
func (p *Policy) PolicyDigest() caisson.Digest { return p.digest }

// Preset returns the preset it was loaded with.
func (p *Policy) Preset() Preset { return p.preset }

// Files returns the names of the files it was loaded from, in order of layers.
func (p *Policy) Files() []string { return slices.Clone(p.loadedFrom) }

// sum covers rules by their meaning, not their bytes: a comment changes nothing,
// an order does.
func (p *Policy) sum() (caisson.Digest, error) {
	type layerSum struct {
		Name  string           `json:"name"`
		Rules []caisson.Digest `json:"rules"`
	}
	sums := []layerSum{}
	for _, l := range p.layers {
		s := layerSum{Name: l.name, Rules: []caisson.Digest{}}
		for _, r := range l.rules {
			s.Rules = append(s.Rules, r.digest)
		}
		sums = append(sums, s)
	}
	raw, err := caisson.CanonicalOf(struct {
		Gate     int                       `json:"gate"`
		Preset   Preset                    `json:"preset"`
		Layers   []layerSum                `json:"layers"`
		ReadOnly []string                  `json:"read_only_servers"`
		Trusted  []string                  `json:"trusted_dirs"`
		Verbs    map[string]caisson.Ruling `json:"verbs,omitempty"`
	}{version, p.preset, sums, append([]string{}, p.readOnly...), p.trusted, p.verbs})
	if err != nil {
		return "", err
	}
	return caisson.DigestOf(raw), nil
}
