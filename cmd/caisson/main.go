// Command caisson runs coding agents confined to a git worktree.
package main

import (
	"context"
	"os"

	"github.com/caisson-run/caisson/internal/cli"
)

func main() {
	dir, err := os.Getwd()
	if err != nil {
		dir = "" // who needs it says so
	}
	os.Exit(cli.Main(context.Background(), os.Args[1:], cli.IO{ //nolint:forbidigo // this is main
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Getenv, Dir: dir,
	}))
}
