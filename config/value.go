package config

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/internal/strictyaml"
)

var (
	sizeText = regexp.MustCompile(`^(-?[0-9]{1,19})( ?(B|KiB|MiB|GiB|TiB|KB|MB|GB|TB))?$`)
	costText = regexp.MustCompile(`^(-?)([0-9]{1,12})(\.([0-9]{1,6}))? USD$`)
	dayText  = regexp.MustCompile(`^(-?[0-9]{1,6})d$`)
)

var sizeUnits = map[string]int64{
	"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
}

// ParseSize reads bytes: "4GiB", "500 MB", "40000".
func ParseSize(s string) (int64, error) {
	m := sizeText.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("%q is not a size: write a whole number and B, KiB, MiB, GiB, TiB, KB, MB, GB or TB", s)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	unit := sizeUnits[m[3]]
	if err != nil || n > math.MaxInt64/unit || n < math.MinInt64/unit {
		return 0, fmt.Errorf("%q is too large", s)
	}
	return n * unit, nil
}

// ParseDuration reads a time as Go writes it ("30s", "1h30m"), or days ("30d").
func ParseDuration(s string) (time.Duration, error) {
	if m := dayText.FindStringSubmatch(s); m != nil {
		days, _ := strconv.ParseInt(m[1], 10, 64) // at most six digits
		const day = 24 * time.Hour
		if days > int64(math.MaxInt64/day) || days < int64(math.MinInt64/day) {
			return 0, fmt.Errorf("%q is too long", s)
		}
		return time.Duration(days) * day, nil
	}
	if s == "0" {
		return 0, fmt.Errorf("%q is not a time: write it with a unit, as 30s, 24h or 30d", s)
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a time: write it as 30s, 1h30m or 30d", s)
	}
	return d, nil
}

// ParseCost reads an amount of money, "5 USD" or "0.25 USD", as micro dollars.
func ParseCost(s string) (int64, error) {
	m := costText.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("%q is not an amount: write it as 5 USD or 0.25 USD, with at most six decimals", s)
	}
	whole, _ := strconv.ParseInt(m[2], 10, 64) // at most twelve digits
	part, _ := strconv.ParseInt((m[4] + "000000")[:6], 10, 64)
	micro := whole*1e6 + part
	if m[1] == "-" {
		micro = -micro
	}
	return micro, nil
}

func sizeOf(v strictyaml.Value) (int64, error) { return parsed(v, ParseSize) }

func costOf(v strictyaml.Value) (int64, error) { return parsed(v, ParseCost) }

func durationOf(v strictyaml.Value) (int64, error) {
	return parsed(v, func(s string) (int64, error) {
		d, err := ParseDuration(s)
		return int64(d), err
	})
}

func countOf(v strictyaml.Value) (int64, error) { return v.Int() }

func parsed(v strictyaml.Value, parse func(string) (int64, error)) (int64, error) {
	text, err := v.Text()
	if err != nil {
		return 0, err
	}
	n, err := parse(text)
	if err != nil {
		return 0, v.Errorf("%v", err)
	}
	return n, nil
}

// plain tells whether a value is one printable line without blanks around it.
func plain(s string) bool {
	return s != "" && s == strings.TrimSpace(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f })
}
