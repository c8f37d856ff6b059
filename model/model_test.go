package model

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
)

func TestOpenRefusals(t *testing.T) {
	tests := []struct {
		ref  string
		env  []string
		code caisson.Code
		says string
	}{
		{"nobody/x", nil, caisson.CodeModelUnknown, "anthropic"},
		{"anthropic", nil, caisson.CodeModelUnknown, "ollama"},
		{"anthropic/", nil, caisson.CodeModelUnknown, "openrouter"},
		{"", nil, caisson.CodeModelUnknown, "google"},
		{"anthropic/claude-sonnet-4-5", nil, caisson.CodeModelKeyMissing, "ANTHROPIC_API_KEY"},
		{"openai/gpt-5", []string{"OPENAI_API_KEY", "  "}, caisson.CodeModelKeyMissing, "OPENAI_API_KEY"},
		{"google/gemini-2.5-pro", nil, caisson.CodeModelKeyMissing, "GEMINI_API_KEY"},
		{"openrouter/x/y", nil, caisson.CodeModelKeyMissing, "OPENROUTER_API_KEY"},
		{"openai-compatible/x", nil, caisson.CodeModelUnknown, "no address"},
		{"script:/no/such/file", nil, caisson.CodeScriptInvalid, "no such file"},
	}
	for _, tt := range tests {
		_, err := Open(t.Context(), tt.ref, Options{Getenv: env(tt.env...)})
		if caisson.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q: got %v (%s), want %s with %q", tt.ref, err, caisson.CodeOf(err), tt.code, tt.says)
		}
	}
}

func TestPrices(t *testing.T) {
	getenv := env("ANTHROPIC_API_KEY", "k", "OPENAI_COMPATIBLE_BASE_URL", "http://127.0.0.1:1/v1")
	open := func(ref string, prices map[string]caisson.Price) caisson.Model {
		m, err := Open(t.Context(), ref, Options{Getenv: getenv, Prices: prices})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	price, known := open("anthropic/claude-opus-4-8", nil).Price()
	want := caisson.Price{Input: 5_000_000, Output: 25_000_000, CacheRead: 500_000, CacheWrite: 6_250_000}
	if !known || price != want {
		t.Errorf("got %+v, %t", price, known)
	}
	if window, output := open("anthropic/claude-opus-4-8-20260101", nil).Limits(); window != 1_000_000 || output != 128_000 {
		t.Errorf("got limits %d, %d for a dated name", window, output)
	}
	if _, known := open("openai-compatible/claude-opus-4-8", nil).Price(); known {
		t.Error("the price of a name at an unknown server is known")
	}
	own := caisson.Price{Input: 1, Output: 2}
	price, known = open("openai-compatible/x", map[string]caisson.Price{"openai-compatible/x": own}).Price()
	if !known || price != own {
		t.Errorf("got %+v, %t", price, known)
	}
}
