package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson"
	"go.yaml.in/yaml/v3"
)

// Script is a model that plays a file: demonstrations and tests without a
// provider, through the same path as a real one.
//
// Which turn comes is the number of assistant messages in the transcript it is
// sent, so it goes on where it was after a restart, and gives the same answer
// when asked the same again. How often a fault was played is counted in memory
// only.
type Script struct {
	path  string
	file  scriptFile
	mu    sync.Mutex
	fault map[int]int // turn → faults played
}

// scriptFile is the whole file.
type scriptFile struct {
	Name   string        `yaml:"name"`
	Price  *scriptPrice  `yaml:"price"`  // none: the price is unknown
	Limits scriptLimits  `yaml:"limits"` // in tokens
	Record string        `yaml:"record"` // file beside the script; each request is added as a line of JSON
	Turns  []*scriptTurn `yaml:"turns"`
}

// scriptPrice is in US dollars per million tokens.
type scriptPrice struct {
	Input      float64 `yaml:"input"`
	Output     float64 `yaml:"output"`
	CacheRead  float64 `yaml:"cache_read"`
	CacheWrite float64 `yaml:"cache_write"`
}

type scriptLimits struct {
	Context int64 `yaml:"context"`
	Output  int64 `yaml:"output"`
}

// scriptTurn is one answer. Of error, cut and stall at most one may be set.
type scriptTurn struct {
	Expect    []*scriptExpect `yaml:"expect"` // of the results it is sent, by place
	Delay     scriptDuration  `yaml:"delay"`  // before anything else
	Reasoning string          `yaml:"reasoning"`
	Text      string          `yaml:"text"`
	Calls     []*scriptCall   `yaml:"calls"`
	Usage     *scriptUsage    `yaml:"usage"`  // none: a quarter of the bytes
	Finish    caisson.Finish  `yaml:"finish"` // none: stop, or calls where there are any
	Stall     bool            `yaml:"stall"`  // after text, nothing more comes until it is stopped
	Cut       bool            `yaml:"cut"`    // the stream ends in the middle of the last call's input or of the text
	Error     *scriptError    `yaml:"error"`  // before anything came
	Times     int             `yaml:"times"`  // how often stall, cut or error is played before the answer is; 0: always
}

type scriptCall struct {
	Tool     string    `yaml:"tool"`
	ID       string    `yaml:"id"`        // the provider's id; may repeat or be empty
	Input    yaml.Node `yaml:"input"`     // becomes JSON
	InputRaw *string   `yaml:"input_raw"` // instead: exactly these bytes

	input string
}

type scriptUsage struct {
	Input      int64 `yaml:"input"`
	Output     int64 `yaml:"output"`
	CacheRead  int64 `yaml:"cache_read"`
	CacheWrite int64 `yaml:"cache_write"`
}

type scriptError struct {
	Code      caisson.Code `yaml:"code"` // none: model-error
	Message   string       `yaml:"message"`
	Transient bool         `yaml:"transient"` // may be retried
}

type scriptExpect struct {
	Tool     string `yaml:"tool"`
	Contains string `yaml:"contains"`
	Matches  string `yaml:"matches"` // regular expression (RE2), over the whole text
	Failed   *bool  `yaml:"failed"`

	matches *regexp.Regexp
}

type scriptDuration time.Duration

// UnmarshalYAML implements yaml.Unmarshaler.
func (d *scriptDuration) UnmarshalYAML(node *yaml.Node) error {
	parsed, err := time.ParseDuration(node.Value)
	if err != nil || parsed < 0 {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %q is not a duration such as 200ms", node.Line, node.Value)}}
	}
	*d = scriptDuration(parsed)
	return nil
}

// OpenScript reads a script. Unknown keys and values that make no sense are
// CodeScriptInvalid, with file and line.
func OpenScript(path string) (*Script, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeScriptInvalid, "read script: %w", err)
	}
	s := &Script{path: path, fault: map[int]int{}}
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	decoder.KnownFields(true)
	if err := decoder.Decode(&s.file); err != nil && !errors.Is(err, io.EOF) {
		return nil, s.invalid("%s", yamlMessage(err))
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, s.invalid("more than one document")
	}
	lines := turnLines(raw)
	for i, turn := range s.file.Turns {
		if turn == nil {
			return nil, s.invalid("line %d: turn %d is empty", lines[i], i+1)
		}
		if err := turn.prepare(); err != nil {
			return nil, s.invalid("line %d: turn %d: %v", lines[i], i+1, err)
		}
	}
	if s.file.Record != "" && !filepath.IsAbs(s.file.Record) {
		s.file.Record = filepath.Join(filepath.Dir(path), s.file.Record)
	}
	return s, nil
}

func (s *Script) invalid(format string, args ...any) error {
	return caisson.Errorf(caisson.CodeScriptInvalid, "%s: %s", s.path, fmt.Sprintf(format, args...)).With("file", s.path)
}

// yamlMessage takes the decoder's Go types out of its message.
func yamlMessage(err error) string {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	message = strings.TrimSpace(strings.TrimPrefix(message, "unmarshal errors:"))
	message = regexp.MustCompile(` in type \S+`).ReplaceAllString(message, "")
	return regexp.MustCompile(`\s*\n\s*`).ReplaceAllString(message, "; ")
}

// turnLines returns the line of each turn in a text that was read before.
func turnLines(raw []byte) []int {
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil || len(doc.Content) == 0 {
		return nil
	}
	var lines []int
	root := doc.Content[0]
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value != "turns" {
			continue
		}
		for _, turn := range root.Content[i+1].Content {
			lines = append(lines, turn.Line)
		}
	}
	return lines
}

func (t *scriptTurn) prepare() error {
	faults := 0
	for _, set := range []bool{t.Stall, t.Cut, t.Error != nil} {
		if set {
			faults++
		}
	}
	switch {
	case faults > 1:
		return errors.New("more than one of stall, cut and error")
	case t.Times < 0 || (t.Times > 0 && faults == 0):
		return errors.New("times counts a stall, cut or error")
	}
	switch t.Finish {
	case "", caisson.FinishStop, caisson.FinishCalls, caisson.FinishLength, caisson.FinishFilter, caisson.FinishOther:
	default:
		return fmt.Errorf("no finish %q", t.Finish)
	}
	for i, call := range t.Calls {
		if call == nil || call.Tool == "" {
			return fmt.Errorf("call %d names no tool", i+1)
		}
		if err := call.prepare(); err != nil {
			return fmt.Errorf("call %d: %w", i+1, err)
		}
	}
	for i, expect := range t.Expect {
		if expect == nil {
			return fmt.Errorf("expectation %d is empty", i+1)
		}
		re, err := regexp.Compile(expect.Matches)
		if err != nil {
			return fmt.Errorf("expectation %d: %w", i+1, err)
		}
		expect.matches = re
	}
	return nil
}

func (c *scriptCall) prepare() error {
	if c.InputRaw != nil {
		if !c.Input.IsZero() {
			return errors.New("both input and input_raw")
		}
		c.input = *c.InputRaw
		return nil
	}
	if c.Input.IsZero() {
		c.input = "{}"
		return nil
	}
	var value any
	if err := c.Input.Decode(&value); err != nil {
		return fmt.Errorf("read input: %w", err)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("input has no JSON form: %w", err)
	}
	c.input = string(raw)
	return nil
}
