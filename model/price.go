package model

import (
	"math"
	"strings"

	"charm.land/catwalk/pkg/catwalk"
	"charm.land/catwalk/pkg/embedded"
	"github.com/caisson-run/caisson"
)

// describe fills in what the catalogue and the caller's prices say of a model.
func (m *remote) describe(id string, prices map[string]caisson.Price) {
	for _, entry := range embedded.GetAll() {
		if entry.ID != m.provider.catalog || m.provider.catalog == "" {
			continue
		}
		for _, model := range entry.Models {
			if model.ID == id || undated(id) == model.ID {
				m.window, m.output = model.ContextWindow, model.DefaultMaxTokens
				m.price, m.priced = priceOf(model)
			}
			if model.ID == id {
				break
			}
		}
	}
	if price, ok := prices[m.ref]; ok {
		m.price, m.priced = price, true
	}
}

// undated cuts a release date off a model's id: "claude-x-4-5-20250929".
func undated(id string) string {
	head, date, found := cutLast(id, "-")
	if !found || len(date) != 8 || strings.Trim(date, "0123456789") != "" {
		return id
	}
	return head
}

func cutLast(s, sep string) (string, string, bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// priceOf reads a price, in US dollars per million tokens there. The catalogue
// does not say free: 0 and 0 is unknown. Its two cache prices stand in either
// order, so the lower is read as reading and the higher as writing; one that
// is missing costs as much as plain input.
func priceOf(m catwalk.Model) (caisson.Price, bool) {
	if m.CostPer1MIn <= 0 && m.CostPer1MOut <= 0 {
		return caisson.Price{}, false
	}
	price := caisson.Price{Input: micro(m.CostPer1MIn), Output: micro(m.CostPer1MOut)}
	price.CacheRead, price.CacheWrite = price.Input, price.Input
	for _, cached := range []float64{m.CostPer1MInCached, m.CostPer1MOutCached} {
		if cached <= 0 {
			continue
		}
		price.CacheRead = min(price.CacheRead, micro(cached))
		price.CacheWrite = max(price.CacheWrite, micro(cached))
	}
	return price, true
}

func micro(dollars float64) int64 { return int64(math.Round(dollars * 1e6)) }
