// Command demo does the main job end to end on a real repository, kills Caisson
// three times on the way, and checks what it promises. It drives the program as a
// person would: by its command line.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

func main() {
	if err := demo(); err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo: FAILED:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func demo() error {
	binary, err := filepath.Abs("bin/caisson")
	if err != nil {
		return err
	}
	room, err := os.MkdirTemp("", "caisson-demo-")
	if err != nil {
		return err
	}
	if room, err = filepath.EvalSymlinks(room); err != nil {
		return err
	}
	s := &stage{binary: binary, room: room, repo: filepath.Join(room, "dates"), started: time.Now()}
	if err := s.set(os.Getenv("MODEL")); err != nil {
		return err
	}
	if err := s.play(); err != nil {
		return fmt.Errorf("%w\nwhat there was is kept in %s", err, room)
	}
	s.check()
	if s.failed > 0 {
		return fmt.Errorf("%d checks failed; what there was is kept in %s", s.failed, room)
	}
	fmt.Printf("\nEvery check passed in %.0f s.\n", time.Since(s.started).Seconds()) //nolint:forbidigo // this is a program for people
	return os.RemoveAll(room)
}
