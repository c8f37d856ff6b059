package config

import (
	"regexp"
	"time"

	"github.com/caisson-run/caisson/internal/strictyaml"
)

// DefaultRefresh is the age at which images are made new.
const DefaultRefresh = 7 * 24 * time.Hour

// imageText is a reference to an image; the engine reads it closer.
var imageText = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._/:@-]{0,254}$`)

func readImage(at func(*Config) *string) func(*Config, strictyaml.Value) error {
	return func(c *Config, v strictyaml.Value) error {
		text, err := v.String()
		if err == nil && !imageText.MatchString(text) {
			err = v.Errorf("%q is not the name of an image", text)
		}
		if err == nil {
			*at(c) = text
		}
		return err
	}
}

func readRefresh(c *Config, v strictyaml.Value) error {
	age, err := durationOf(v)
	if err == nil && age < 0 {
		err = v.Errorf("an age is not below 0")
	}
	if err == nil {
		c.Containers.Refresh = time.Duration(age)
	}
	return err
}
