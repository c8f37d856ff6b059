// Package config reads settings: the user's file, which may say anything, and a
// repository's, which may only tighten what holds without it.
//
// It is strict: an unknown key, a value of another type or a number that cannot
// be meant is an error with file and line, never a default. Every value that
// comes out knows where it came from. It does no I/O and looks up nothing beside
// what it is given; only the number of processors is asked from the runtime.
package config

import (
	"errors"
	"runtime"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/strictyaml"
	"github.com/caisson-run/caisson/sandbox/egress/rule"
	"github.com/caisson-run/caisson/verb/declared"
)

// File is a settings file that somebody has read. A zero File is none.
type File struct {
	Name string // for messages and origins
	Data []byte
}

// Config is what holds.
type Config struct {
	Model   string // provider/model; empty: must be named for each run
	Engine  string // for this operating system; empty: the strongest usable
	Preset  string
	Require []caisson.Control
	Limits  caisson.Limits
	Floors  Floors
	// TrashDays is how long removed workspaces are kept.
	TrashDays int64
	Budget    caisson.Budget
	Env       []string // names to pass in
	Caches    []string // go, npm, pip, cargo
	Hide      []string // patterns
	Ptrace    bool
	Mounts    []caisson.Mount
	Network   []rule.Rule
	// NetworkUnknown is UnknownDeny or UnknownReview.
	NetworkUnknown string
	Credentials    []Credential
	Logins         []Login // of agents, that sandboxes share with the person
	Review         Review
	OnUnknown      string // ask or tell
	Prices         map[string]caisson.Price
	Instructions   []string
	StateDir       string // empty: by the XDG rules
	Containers     Containers
	// WorkspaceMode is how workspaces are made; empty: as the engine needs it.
	WorkspaceMode caisson.WorkspaceMode
	Verbs         []declared.Verb // that sandboxes may ask for, beside the built-in ones
	Tasks         Tasks

	origins map[string]string
}

// Floors are what must be there for a run to begin; 0 is nothing.
type Floors struct {
	Disk   int64 // bytes free where the state directory is
	Memory int64 // bytes available
}

// Containers says what sandboxes of container engines are made from.
type Containers struct {
	Image   string        // the user's; empty: ours
	Base    string        // of ours; empty: the built-in one
	Refresh time.Duration // age at which it is made new beside the work; 0: never
}

// Review says how long reviews wait.
type Review struct {
	Expire    time.Duration // for deciding
	UseFor    time.Duration // of an approval
	ParkAfter time.Duration // until a run that only waits is parked
}

// Default is the origin of a value that no file sets.
const Default = "default"

// Origin says where the value of a key came from: a file's name, Default, or
// both files' names where the repository's adds to the user's.
func (c Config) Origin(key string) string {
	if from, ok := c.origins[key]; ok {
		return from
	}
	return Default
}

// Load reads both files. Errors have CodeConfigInvalid, CodeLimitInvalid, or
// CodeConfigWidens for what a repository may not say.
func Load(user, repository File) (Config, error) {
	return load(user, repository, runtime.GOOS, runtime.NumCPU())
}

func load(user, repository File, system string, processors int) (Config, error) {
	c := defaults(processors)
	r := reader{system: system}
	if err := r.file(&c, user, false); err != nil {
		return Config{}, asError(err, caisson.CodeConfigInvalid)
	}
	if err := r.file(&c, repository, true); err != nil {
		return Config{}, asError(err, caisson.CodeConfigInvalid)
	}
	return c, nil
}

func defaults(processors int) Config {
	return Config{
		Preset:    "sandboxed",
		Require:   []caisson.Control{caisson.ControlFiles, caisson.ControlNetwork, caisson.ControlProcesses},
		Floors:    Floors{Disk: 2 << 30, Memory: 512 << 20},
		TrashDays: 14,
		Limits: caisson.Limits{
			Memory: 4 << 30, Pids: 512, CPUs: int64(max(1, processors-1)), Files: 4096, Size: 16 << 30, Tmp: 1 << 30,
		},
		Review:         Review{Expire: 24 * time.Hour, UseFor: 24 * time.Hour, ParkAfter: 30 * time.Second},
		Containers:     Containers{Refresh: DefaultRefresh},
		NetworkUnknown: UnknownDeny,
		OnUnknown:      "ask",
		Prices:         map[string]caisson.Price{},
		Instructions:   []string{"AGENTS.md", "CLAUDE.md"},
		origins:        map[string]string{},
	}
}

type reader struct{ system string }

func (r reader) file(c *Config, f File, repository bool) error {
	if f.Name == "" && f.Data == nil {
		return nil
	}
	root, err := strictyaml.Parse(f.Name, f.Data)
	if err != nil {
		return err
	}
	return r.mapping(c, root, "", repository)
}

// mapping reads one level: a key is a setting, or holds settings.
func (r reader) mapping(c *Config, v strictyaml.Value, above string, repository bool) error {
	fields, err := v.Fields(keysOf(above)...)
	if err != nil {
		return err
	}
	for _, f := range fields {
		key := f.Name
		if above != "" {
			key = above + "." + f.Name
		}
		s, ok := settingOf(key)
		if !ok {
			if err := r.mapping(c, f.Value, key, repository); err != nil {
				return err
			}
			continue
		}
		if err := r.setting(c, s, f.Value, repository); err != nil {
			return err
		}
	}
	return nil
}

func (r reader) setting(c *Config, s setting, v strictyaml.Value, repository bool) error {
	if repository && s.tighten == nil {
		return widens(s, v, "may be set only in the user's config")
	}
	next := *c
	if err := s.read(r, &next, v); err != nil {
		return err
	}
	if repository {
		if why := s.tighten(c, &next); why != "" {
			return widens(s, v, why)
		}
	}
	from := v.File
	if before, set := c.origins[s.Key]; set && s.adds && repository {
		from = before + ", " + v.File
	}
	next.origins[s.Key] = from
	*c = next
	return nil
}

func widens(s setting, v strictyaml.Value, why string) error {
	return asError(v.Errorf("%s", why), caisson.CodeConfigWidens).With("key", s.Key)
}

// asError gives an error of a file its code, once.
func asError(err error, code caisson.Code) *caisson.Error {
	var e *caisson.Error
	if errors.As(err, &e) {
		return e
	}
	out := caisson.Errorf(code, "%w", err)
	var at *strictyaml.Error
	if errors.As(err, &at) {
		out = out.With("file", at.File).With("line", at.Line)
	}
	return out
}

func limitInvalid(v strictyaml.Value, format string, args ...any) error {
	return asError(v.Errorf(format, args...), caisson.CodeLimitInvalid)
}
