package workspace

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/caisson-run/caisson"
)

// looseUpTo is the number of objects up to which they are kept one by one, as
// git itself does; more are kept as a pack.
const looseUpTo = 100

// fetch receives objects from the box. Git inside serves them; what comes
// through the pipes is checked by git outside, so that neither opens the
// other's directory. Objects are asked for by id, never by name: what was
// looked at is what comes.
func (w *Workspaces) fetch(ctx context.Context, repo *repository, ws caisson.Workspace, given Box, wants, haves []string) error {
	return w.fetchFrom(ctx, source{dir: ws.Shadow, repo: repo, haves: haves}, ws, given, wants)
}

// fetchFrom is fetch from any git directory inside.
func (w *Workspaces) fetchFrom(ctx context.Context, from source, ws caisson.Workspace, given Box, wants []string) error {
	if len(wants) == 0 {
		return nil
	}
	box, closeBox, err := w.box(ctx, ws, given)
	if err != nil {
		return err
	}
	defer closeBox() //nolint:errcheck // what was needed has been received
	ctx, cancel := context.WithTimeout(ctx, importDeadline)
	defer cancel()
	if err := w.receive(ctx, from, ws, box, wants); err != nil {
		err = failed("receive the commits of "+ws.Name, err)
		if caisson.CodeOf(err) == caisson.CodeGitFailed {
			caisson.AsError(err).Code = caisson.CodeImportHeld
			err = w.namePaths(ctx, from, ws, box, wants, err)
		}
		return err
	}
	// Each object was checked; now that none is missing. What references reach
	// is known to be whole.
	inv := from.repo.in("rev-list", "--objects", "--stdin", "--not", "--all", "--quiet")
	inv.stdin = strings.NewReader(strings.Join(wants, "\n") + "\n")
	if _, err := w.git.run(ctx, inv); err != nil {
		if statusOf(err) > 0 {
			return caisson.Errorf(caisson.CodeImportHeld, "commits of %s are not whole: %w", ws.Name, err)
		}
		return failed("check the commits of "+ws.Name, err)
	}
	return nil
}

// receive runs git's server inside and takes one pack from it.
func (w *Workspaces) receive(ctx context.Context, from source, ws caisson.Workspace, box Box, wants []string) error {
	ask, serve, err := pipes()
	if err != nil {
		return err
	}
	defer ask.close()
	defer serve.close()
	defer context.AfterFunc(ctx, ask.close)()
	complaint := &tailBuffer{limit: maxComplaint}
	proc, err := box.Hold(ctx, caisson.Command{
		Argv:     []string{"git", "upload-pack", "--strict", "--timeout=60", from.dir},
		Env:      []string{"GIT_PROTOCOL=version=2", "LC_ALL=C"},
		Stdin:    serve.in,
		Stdout:   serve.out,
		Stderr:   complaint,
		Deadline: importDeadline,
	})
	if err != nil {
		return err
	}
	if err := proc.Release(); err != nil {
		proc.Drop()
		return err
	}
	ended := make(chan error, 1)
	go func() { // ends with the process, which ends with its pipes or the deadline
		_, err := proc.Wait(ctx)
		_ = serve.out.Close() // the reader sees the end, whoever made it
		ended <- err
	}()
	err = w.takePack(ctx, from.repo, ask, wants, from.haves)
	_ = writePackets(ask.out, "0000")
	ask.close()
	if err != nil {
		proc.Stop(caisson.CauseUnknown)
	}
	lost := <-ended
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return caisson.Errorf(caisson.CodeCancelled, "receiving the commits of %s was cancelled: %w", ws.Name, context.Cause(ctx))
	case ctx.Err() != nil:
		return caisson.Errorf(caisson.CodeDeadline, "the commits of %s did not come in time", ws.Name)
	case lost != nil:
		return lost
	}
	if said := printable(complaint.String()); said != "" {
		return fmt.Errorf("%w (git inside: %s)", err, said)
	}
	return err
}

// takePack asks for a pack and has git check and keep what is in it.
func (w *Workspaces) takePack(ctx context.Context, repo *repository, ask pair, wants, haves []string) error {
	pack, err := requestPack(ask.in, ask.out, repo.format, wants, haves)
	if err != nil {
		return err
	}
	buffered := bufio.NewReaderSize(pack, 64<<10)
	head, err := buffered.Peek(12)
	if err != nil {
		return err
	}
	count, err := packCount(head)
	if err != nil {
		return err
	}
	if count == 0 {
		return nil
	}
	inv := repo.in("unpack-objects", "-q", "--strict", fmt.Sprint("--max-input-size=", int64(maxImport)))
	if count > looseUpTo {
		inv = repo.in("index-pack", "--stdin", "--fix-thin", "--strict", fmt.Sprint("--max-input-size=", int64(maxImport)))
	}
	source := &remembered{r: buffered}
	inv.stdin = source
	_, err = w.git.run(ctx, inv)
	return errors.Join(source.why(), err)
}

// remembered keeps why reading ended, which the reading process cannot tell.
type remembered struct {
	r   io.Reader
	mu  sync.Mutex
	err error
}

func (s *remembered) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && err != io.EOF {
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
	}
	return n, err
}

func (s *remembered) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// pair is one side of a stream in two directions.
type pair struct{ in, out *os.File }

func (p pair) close() {
	_ = p.in.Close()
	_ = p.out.Close()
}

// pipes returns the two sides of a stream.
func pipes() (one, other pair, err error) {
	if one.in, other.out, err = os.Pipe(); err != nil {
		return one, other, err
	}
	if other.in, one.out, err = os.Pipe(); err != nil {
		_ = one.in.Close()
		_ = other.out.Close()
	}
	return one, other, err
}
