package caisson

import (
	"context"
	"encoding/json"
	"iter"
)

// Model is a language model. Safe for concurrent use.
type Model interface {
	// Ref is "provider/name".
	Ref() string
	// Price is what tokens cost; known=false where nobody says.
	Price() (price Price, known bool)
	// Limits are the model's context window and largest answer in tokens; 0: unknown.
	Limits() (context, output int64)
	// Stream asks for one answer. Events come in order; the last is of kind
	// ModelDone, or the error. A cut answer is an error, never ModelDone. The
	// sequence ends soon after ctx does, and is used once.
	Stream(ctx context.Context, req ModelRequest) iter.Seq2[ModelEvent, error]
}

// Price is in micro US dollars per million tokens.
type Price struct {
	Input, Output, CacheRead, CacheWrite int64
}

// ModelRequest is what a model is sent.
type ModelRequest struct {
	System    string      `json:"system"`
	Messages  []Message   `json:"messages"`
	Tools     []ModelTool `json:"tools"`
	MaxOutput int64       `json:"max_output,omitempty"` // tokens; 0: the model's
}

// ModelTool is a tool as a model sees it.
type ModelTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
}

// Role of a message.
type Role string

// Roles.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one entry of a transcript.
type Message struct {
	Role  Role   `json:"role"`
	Parts []Part `json:"parts"`
}

// PartKind says what a part is.
type PartKind string

// Kinds of part.
const (
	PartText      PartKind = "text"
	PartReasoning PartKind = "reasoning"
	PartCall      PartKind = "call"
	PartResult    PartKind = "result"
)

// Part is a piece of a message.
type Part struct {
	Kind PartKind `json:"kind"`
	Text string   `json:"text,omitempty"` // text, reasoning, or a result's text
	// ProviderID, Tool and Input belong to a call; Input is what the model wrote,
	// not yet parsed and perhaps not JSON. ProviderID and Failed belong to a result.
	ProviderID string `json:"provider_id,omitempty"`
	Tool       string `json:"tool,omitempty"`
	Input      string `json:"input,omitempty"`
	Failed     bool   `json:"failed,omitempty"`
	// Opaque is the provider's own (signatures); sent back as it came.
	Opaque json.RawMessage `json:"opaque,omitempty"`
}

// Usage counts tokens. Input includes what was read from and written to a cache.
type Usage struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
}

// Tokens is the sum of input and output.
func (u Usage) Tokens() int64 { return u.Input + u.Output }

// Cost returns micro US dollars, rounded up.
func (u Usage) Cost(p Price) int64 {
	plain := u.Input - u.CacheRead - u.CacheWrite
	sum := plain*p.Input + u.CacheRead*p.CacheRead + u.CacheWrite*p.CacheWrite + u.Output*p.Output
	return (sum + 999_999) / 1_000_000
}

// ModelEventKind says what a model event is.
type ModelEventKind string

// Kinds of model event.
const (
	ModelText      ModelEventKind = "text"      // Delta
	ModelReasoning ModelEventKind = "reasoning" // Delta
	ModelCallPart  ModelEventKind = "call"      // a call has begun or grown; for display only
	ModelDone      ModelEventKind = "done"      // Answer
)

// ModelEvent is one event of an answer's stream.
type ModelEvent struct {
	Kind   ModelEventKind
	Delta  string
	Answer *ModelAnswer // with ModelDone: the whole answer
}

// Finish is why a model ended its answer.
type Finish string

// Finishes.
const (
	FinishStop   Finish = "stop"
	FinishCalls  Finish = "calls"
	FinishLength Finish = "length" // cut by its output cap
	FinishFilter Finish = "filter"
	FinishOther  Finish = "other"
)

// ModelAnswer is a complete answer.
type ModelAnswer struct {
	Message Message `json:"message"`
	Usage   Usage   `json:"usage"`
	Finish  Finish  `json:"finish"`
	Model   string  `json:"model"` // that answered, after fallback
}
