// Package model opens language models: those of providers, through fantasy, and
// scripted ones; and wraps them with retry, a bound on silence, and fallback.
//
// What it guarantees: an answer is whole or an error, arguments of parallel
// calls are never merged or swapped, and nothing is asked again once a part of
// an answer was passed on. What it does not: that a provider bills what its
// usage says, or that a model's arguments are JSON.
package model

import (
	"context"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"

	"charm.land/catwalk/pkg/catwalk"
	"charm.land/catwalk/pkg/embedded"
	"charm.land/fantasy"
	"charm.land/fantasy/providers/anthropic"
	"charm.land/fantasy/providers/google"
	"charm.land/fantasy/providers/openai"
	"charm.land/fantasy/providers/openaicompat"
	"github.com/caisson-run/caisson"
)

// Options of [Open].
type Options struct {
	// Getenv looks up keys and addresses; nil: the process's environment.
	Getenv func(string) string
	// BaseURL replaces the provider's address.
	BaseURL string
	// Prices by "provider/name" go before the built-in ones.
	Prices map[string]caisson.Price
	// HTTPClient is used for every request; nil: a client with the proxy
	// settings of the environment and no timeout of its own.
	HTTPClient *http.Client
}

// Names of the providers that are not in the embedded catalogue.
const (
	providerCompatible = "openai-compatible"
	providerOllama     = "ollama"
	providerScript     = "script"
)

// protocol is how a provider is spoken to.
type protocol int

const (
	speakCompatible protocol = iota
	speakOpenAI
	speakAnthropic
	speakGoogle
)

// provider is one row of the table of providers.
type provider struct {
	name    string
	speaks  protocol
	keyVars []string // the first that is set counts; empty: no key
	keyless bool     // works without a key
	base    string   // default address; "" for none
	baseVar string   // environment variable that replaces it
	catalog catwalk.InferenceProvider
}

// providers returns the table by name. Those of the embedded catalogue that
// speak one of our protocols and take a key are in it under their own names.
func providers() map[string]provider {
	table := map[string]provider{
		"anthropic":  {speaks: speakAnthropic, keyVars: []string{"ANTHROPIC_API_KEY"}, base: anthropic.DefaultURL, baseVar: "ANTHROPIC_BASE_URL", catalog: "anthropic"},
		"openai":     {speaks: speakOpenAI, keyVars: []string{"OPENAI_API_KEY"}, base: openai.DefaultURL, baseVar: "OPENAI_BASE_URL", catalog: "openai"},
		"google":     {speaks: speakGoogle, keyVars: []string{"GEMINI_API_KEY", "GOOGLE_API_KEY"}, base: "https://generativelanguage.googleapis.com", baseVar: "GEMINI_BASE_URL", catalog: "gemini"},
		"openrouter": {speaks: speakCompatible, keyVars: []string{"OPENROUTER_API_KEY"}, base: "https://openrouter.ai/api/v1", catalog: "openrouter"},
		providerCompatible: {
			speaks: speakCompatible, keyVars: []string{"OPENAI_COMPATIBLE_API_KEY"}, keyless: true, baseVar: "OPENAI_COMPATIBLE_BASE_URL",
		},
		providerOllama: {speaks: speakCompatible, keyless: true, base: "http://127.0.0.1:11434/v1", baseVar: "OLLAMA_BASE_URL"},
	}
	for _, entry := range embedded.GetAll() {
		key, isVar := strings.CutPrefix(entry.APIKey, "$")
		_, taken := table[string(entry.ID)]
		if entry.Type != catwalk.TypeOpenAICompat || !isVar || taken || !strings.HasPrefix(entry.APIEndpoint, "https://") {
			continue
		}
		table[string(entry.ID)] = provider{speaks: speakCompatible, keyVars: []string{key}, base: entry.APIEndpoint, catalog: entry.ID}
	}
	for name, row := range table {
		row.name = name
		table[name] = row
	}
	return table
}

// Providers returns the names that [Open] takes before the slash, sorted.
func Providers() []string { return slices.Sorted(maps.Keys(providers())) }

// Open returns the model that ref names: "provider/name", or "script:FILE".
// Nothing is sent yet.
//
// CodeModelUnknown: no such provider, no name, or no address. CodeModelKeyMissing:
// the provider's key is not in the environment.
func Open(ctx context.Context, ref string, opts Options) (caisson.Model, error) {
	if path, ok := strings.CutPrefix(ref, providerScript+":"); ok {
		return OpenScript(path)
	}
	if opts.Getenv == nil {
		opts.Getenv = os.Getenv
	}
	name, id, _ := strings.Cut(ref, "/")
	row, known := providers()[name]
	if !known || id == "" {
		return nil, caisson.Errorf(caisson.CodeModelUnknown, "no model %q; providers are %s", ref, strings.Join(Providers(), ", ")).
			WithHint("Write it as provider/model, e.g. anthropic/claude-sonnet-4-5, or script:FILE.").With("providers", Providers())
	}
	key, err := row.key(opts.Getenv)
	if err != nil {
		return nil, err
	}
	base := opts.BaseURL
	if base == "" && row.baseVar != "" {
		base = opts.Getenv(row.baseVar)
	}
	if base == "" {
		base = row.base
	}
	if base == "" {
		return nil, caisson.Errorf(caisson.CodeModelUnknown, "provider %s has no address", name).
			WithHint("Set %s, e.g. http://127.0.0.1:8000/v1.", row.baseVar)
	}
	client := opts.HTTPClient
	if client == nil {
		client = &http.Client{}
	}
	lang, err := row.connect(ctx, id, base, key, client)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeModelError, "open model %s: %w", ref, err)
	}
	m := &remote{ref: ref, provider: row, lang: lang}
	m.describe(id, opts.Prices)
	return m, nil
}

func (p provider) key(getenv func(string) string) (string, error) {
	for _, name := range p.keyVars {
		if key := strings.TrimSpace(getenv(name)); key != "" {
			return key, nil
		}
	}
	if p.keyless {
		return "", nil
	}
	return "", caisson.Errorf(caisson.CodeModelKeyMissing, "%s is not set, and provider %s needs it", p.keyVars[0], p.name).
		WithHint("Set %s in the environment of caisson. It is used on the host only and never enters a sandbox.", p.keyVars[0]).
		With("variable", p.keyVars[0])
}

func (p provider) connect(ctx context.Context, id, base, key string, client *http.Client) (fantasy.LanguageModel, error) {
	agent := "caisson/" + caisson.Version
	var (
		made fantasy.Provider
		err  error
	)
	switch p.speaks {
	case speakAnthropic:
		made, err = anthropic.New(anthropic.WithBaseURL(base), anthropic.WithAPIKey(key), anthropic.WithHTTPClient(client), anthropic.WithUserAgent(agent))
	case speakGoogle:
		made, err = google.New(google.WithBaseURL(base), google.WithGeminiAPIKey(key), google.WithHTTPClient(client), google.WithUserAgent(agent))
	case speakOpenAI:
		made, err = openai.New(openai.WithBaseURL(base), openai.WithAPIKey(key), openai.WithHTTPClient(client), openai.WithUserAgent(agent),
			openai.WithUseResponsesAPI(), openai.WithLanguageModelOptions(openai.WithLanguageModelStreamExtraFunc(tap(nil))))
	default:
		if key == "" {
			key = "none" // the client would else take another provider's key from the environment
		}
		made, err = openaicompat.New(openaicompat.WithName(p.name), openaicompat.WithBaseURL(base), openaicompat.WithAPIKey(key),
			openaicompat.WithHTTPClient(client), openaicompat.WithUserAgent(agent),
			openaicompat.WithLanguageModelOptions(openai.WithLanguageModelStreamExtraFunc(tap(openaicompat.StreamExtraFunc))))
	}
	if err != nil {
		return nil, err
	}
	return made.LanguageModel(ctx, id)
}
