package model

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"charm.land/fantasy"
	"github.com/caisson-run/caisson"
)

// Details of an error of this package, for programs.
const (
	detailStatus    = "status"         // HTTP status, where there was one
	detailTransient = "transient"      // true: the same request may succeed later
	detailAfter     = "retry_after_ms" // how long the provider asks to wait
)

// maxMessage bounds what of a provider's message is passed on.
const maxMessage = 600

// fault turns what fantasy or the network says into an Error. An answer that
// was cut by ctx has the code of that.
func (m *remote) fault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return interrupted(ctx)
	}
	var known *caisson.Error
	if errors.As(err, &known) {
		return err
	}
	message := err.Error()
	transient := false
	out := &caisson.Error{Code: caisson.CodeModelError, Op: "ask model", Err: err}
	var said *fantasy.ProviderError
	var network net.Error
	switch {
	case errors.Is(err, errCut):
		transient = true
	case errors.As(err, &said):
		transient = said.IsRetryable()
		message = said.Message
		if said.Title != "" {
			message = said.Title + ": " + message
		}
		m.hint(out, said)
	case errors.As(err, &network), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		transient = true
	}
	message = strings.ToValidUTF8(strings.TrimSpace(message), "\uFFFD")
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	out.Message = "model " + m.ref + ": " + message
	return out.With(detailTransient, transient)
}

func (m *remote) hint(out *caisson.Error, said *fantasy.ProviderError) {
	if said.StatusCode != 0 {
		_ = out.With(detailStatus, said.StatusCode)
	}
	for name, value := range said.ResponseHeaders {
		if after, ok := retryAfter(name, value); ok {
			_ = out.With(detailAfter, after.Milliseconds())
		}
	}
	switch {
	case said.StatusCode == http.StatusUnauthorized || said.StatusCode == http.StatusForbidden:
		if len(m.provider.keyVars) > 0 {
			out.Hint = "Look at " + m.provider.keyVars[0] + ": the provider does not accept the key."
		}
	case said.StatusCode == http.StatusNotFound:
		out.Hint = "Look at the model's name: the provider does not know it."
	case said.IsContextTooLarge():
		out.Hint = "The transcript has outgrown the model's context window."
	}
}

// retryAfter reads a Retry-After header in seconds; the date form is not used
// by providers of models.
func retryAfter(name, value string) (time.Duration, bool) {
	if !strings.EqualFold(name, "Retry-After") {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil || seconds < 0 || seconds > 3600 {
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}

func interrupted(ctx context.Context) error {
	return caisson.Errorf(caisson.CodeInterrupted, "the answer was interrupted: %w", context.Cause(ctx))
}

// Transient tells whether the same request may succeed later.
func Transient(err error) bool {
	var e *caisson.Error
	if !errors.As(err, &e) {
		return false
	}
	flag, _ := e.Detail[detailTransient].(bool)
	return flag
}
