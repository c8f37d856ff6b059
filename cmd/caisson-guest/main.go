//go:build linux

// Command caisson-guest is the first process of every sandbox.
package main

import (
	"os"

	"github.com/caisson-run/caisson/guest/box"
)

func main() {
	if _, err := box.SetUp(); err != nil {
		os.Exit(1)
	}
}
