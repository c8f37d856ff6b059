package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/wire"
)

// maxContent is the most that is read or written in one operation.
const maxContent = 64 << 20

// Files reads and writes files inside the boundary; see caisson.Files. The
// paths it returns are relative to the workspace.
func (c *Client) Files() caisson.Files { return files{c} }

type files struct{ c *Client }

// Read implements caisson.Files.
func (f files) Read(ctx context.Context, path string, offset, limit int64) (caisson.FileContent, error) {
	if offset < 0 || limit < 0 {
		return caisson.FileContent{}, caisson.Errorf(caisson.CodeCallInvalid, "offset and limit cannot be negative")
	}
	if limit == 0 || limit > maxContent {
		limit = maxContent
	}
	data, done, err := f.run(ctx, wire.File{Op: wire.OpRead, Path: caisson.Bytes(path), Offset: offset, Limit: limit}, nil, limit)
	if err != nil {
		return caisson.FileContent{}, err
	}
	return caisson.FileContent{Info: info(path, done), Data: data}, nil
}

// Write implements caisson.Files.
func (f files) Write(ctx context.Context, path string, data []byte, opts caisson.WriteOptions) (caisson.FileInfo, error) {
	if len(data) > maxContent {
		return caisson.FileInfo{}, caisson.Errorf(caisson.CodeCallInvalid, "%d bytes cannot be written at once, at most %d", len(data), maxContent)
	}
	_, done, err := f.run(ctx, wire.File{
		Op: wire.OpWrite, Path: caisson.Bytes(path), Size: int64(len(data)),
		Expect: opts.Expect, Create: opts.Create, Mode: opts.Mode, Parents: opts.Parents,
	}, data, 0)
	if err != nil {
		return caisson.FileInfo{}, err
	}
	return info(path, done), nil
}

// Stat implements caisson.Files.
func (f files) Stat(ctx context.Context, path string) (caisson.FileInfo, error) {
	_, done, err := f.run(ctx, wire.File{Op: wire.OpStat, Path: caisson.Bytes(path)}, nil, 0)
	if err != nil {
		return caisson.FileInfo{}, err
	}
	return info(path, done), nil
}

// Glob implements caisson.Files.
func (f files) Glob(ctx context.Context, dir, pattern string, limit int) (caisson.GlobResult, error) {
	if limit <= 0 {
		limit = 1000
	}
	raw, done, err := f.run(ctx, wire.File{
		Op: wire.OpGlob, Path: caisson.Bytes(dir), Pattern: caisson.Bytes(pattern), Limit: int64(limit),
	}, nil, maxContent)
	if err != nil {
		return caisson.GlobResult{}, err
	}
	paths, err := list[caisson.Bytes](f.c, raw, limit)
	if err != nil {
		return caisson.GlobResult{}, err
	}
	return caisson.GlobResult{Paths: wire.Strings(paths), Total: done.Total}, nil
}

// Grep implements caisson.Files.
func (f files) Grep(ctx context.Context, q caisson.GrepQuery) (caisson.GrepResult, error) {
	if q.Limit <= 0 {
		q.Limit = 200
	}
	raw, done, err := f.run(ctx, wire.File{
		Op: wire.OpGrep, Path: caisson.Bytes(q.Dir), Pattern: caisson.Bytes(q.Pattern),
		Include: caisson.Bytes(q.Include), Context: q.Context, Limit: int64(q.Limit),
	}, nil, maxContent)
	if err != nil {
		return caisson.GrepResult{}, err
	}
	found, err := list[wire.Match](f.c, raw, q.Limit*(2*max(q.Context, 0)+1))
	if err != nil {
		return caisson.GrepResult{}, err
	}
	result := caisson.GrepResult{Total: done.Total, Skipped: done.Skipped}
	for _, m := range found {
		result.Matches = append(result.Matches, caisson.GrepMatch{Path: string(m.Path), Line: m.Line, Text: string(m.Text), Context: m.Context})
	}
	return result, nil
}

// list reads a list of at most so many: the shortest take thirty times their
// bytes once they are read. A guest that sends more is cut off.
func list[T any](c *Client, raw []byte, most int) ([]T, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	all, err := readList[T](json.NewDecoder(bytes.NewReader(raw)), most)
	if err != nil {
		err = breach("its list cannot be read: %w", err)
		c.cut(err)
		return nil, err
	}
	return all, nil
}

func readList[T any](dec *json.Decoder, most int) (all []T, err error) {
	switch begin, err := dec.Token(); {
	case err != nil:
		return nil, err
	case begin == nil:
		return nil, nil // the guest's for none
	case begin != json.Delim('['):
		return nil, errors.New("it is no list")
	}
	for dec.More() {
		if len(all) == most {
			return nil, fmt.Errorf("it has more than the %d that were asked for", most)
		}
		var one T
		if err := dec.Decode(&one); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	_, err = dec.Token() // the end of the list
	return all, err
}

func info(path string, done wire.Done) caisson.FileInfo {
	if done.Info == nil {
		return caisson.FileInfo{Path: path}
	}
	i := done.Info
	return caisson.FileInfo{Path: path, Size: i.Size, Mode: i.Mode, Kind: i.Kind, ModTime: i.ModTime, Digest: i.Digest}
}

// run does one operation: sends data after the request, and returns what comes
// back, at most limit bytes.
func (f files) run(ctx context.Context, req wire.File, data []byte, limit int64) ([]byte, wire.Done, error) {
	if strings.ContainsRune(string(req.Path), 0) {
		return nil, wire.Done{}, caisson.Errorf(caisson.CodePathInvalid, "a path cannot hold a NUL byte")
	}
	op := &fileOp{credit: wire.NewCredit(), ended: make(chan struct{}), ring: wire.NewRing()}
	id, err := f.c.open(op, wire.TypeFile, &req)
	if err != nil {
		return nil, wire.Done{}, err
	}
	stop := context.AfterFunc(ctx, func() {
		// First, so that what the guest says to the drop is not the answer.
		op.end(caisson.Errorf(caisson.CodeCancelled, "cancelled: %w", context.Cause(ctx)))
		_ = f.c.out.Control(wire.TypeDrop, id, nil) // a lost guest is told by lost
	})
	defer stop()
	op.send(f.c.out, id, data)
	content, err := op.receive(f.c.out, id, limit)
	if err != nil {
		f.c.cut(err)
		return nil, wire.Done{}, err
	}
	<-op.ended
	op.mu.Lock()
	defer op.mu.Unlock()
	return content, op.done, op.err
}

// fileOp is one file operation at the host.
type fileOp struct {
	credit *wire.Credit
	ring   *wire.Ring
	ended  chan struct{}

	mu     sync.Mutex
	closed bool
	done   wire.Done
	err    error
}

func (o *fileOp) send(out *wire.Writer, id uint32, data []byte) {
	buf := make([]byte, wire.HeaderSize+min(len(data), wire.MaxData))
	for len(data) > 0 {
		n := o.credit.Take(min(len(data), wire.MaxData))
		if n == 0 {
			return
		}
		copy(buf[wire.HeaderSize:], data[:n])
		if out.Data(wire.TypeIn, id, buf[:wire.HeaderSize+n]) != nil {
			return
		}
		data = data[n:]
	}
}

// receive gathers the out frames. An error is a guest that sends too much.
func (o *fileOp) receive(out *wire.Writer, id uint32, limit int64) ([]byte, error) {
	var content []byte
	owed := 0
	for {
		n, err := o.ring.Take(func(chunk []byte) error {
			content = append(content, chunk...)
			return nil
		})
		if err == io.EOF || err == io.ErrClosedPipe { //nolint:errorlint // the ring returns them bare
			return content, nil
		}
		if int64(len(content)) > limit {
			return nil, breach("more content than was asked for")
		}
		if owed += n; owed >= wire.Window/2 {
			if out.Credit(id, wire.TypeOut, owed) != nil {
				return content, nil // told by lost
			}
			owed = 0
		}
	}
}

func (o *fileOp) end(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	o.closed, o.err = true, err
	o.credit.Break()
	if err != nil {
		o.ring.Break()
	}
	o.ring.End()
	close(o.ended)
}

// lost implements stream.
func (o *fileOp) lost(err error) { o.end(err) }

// frame implements stream.
func (o *fileOp) frame(h wire.Header, in *wire.Reader) (last bool, err error) {
	if h.Type == wire.TypeOut {
		fits, err := o.ring.Fill(h.Length, in.Body)
		if err == nil && !fits && !o.dropped() {
			err = breach("more content than was allowed")
		} else if err == nil && !fits {
			err = in.Skip(h.Length)
		}
		return false, err
	}
	body, err := in.Control(h)
	if err != nil {
		return false, err
	}
	switch h.Type {
	case wire.TypeCredit:
		return false, takeCredit(body, wire.TypeIn, o.credit)
	case wire.TypeFailed:
		refused, err := parseFailed(body)
		if err == nil {
			o.end(refused)
		}
		return true, err
	case wire.TypeDone:
		var done wire.Done
		if err := wire.Decode(body, &done); err != nil || done.Total < 0 || done.Skipped < 0 {
			return true, breach("done cannot be read: %w", err)
		}
		o.mu.Lock()
		o.done = done
		o.mu.Unlock()
		o.end(nil)
		return true, nil
	default:
		return false, breach("a frame of type %d for a file operation", h.Type)
	}
}

// dropped tells whether the operation was given up while its answer was under way.
func (o *fileOp) dropped() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closed
}
