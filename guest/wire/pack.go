package wire

import (
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/outlet"
	"github.com/caisson-run/caisson/guest/pack"
)

// Pack implements pack.Value.
func (h *Hello) Pack(k *pack.Packer) {
	pack.Number(k, &h.Version)
	pack.Text(k, &h.Nonce)
	pack.Text(k, &h.Workspace)
	pack.List(k, &h.Env, pack.Text)
	pack.Number(k, &h.Files)
	pack.Number(k, &h.Size)
	pack.Number(k, &h.Threads)
	pack.Maybe(k, &h.Outlet, func(k *pack.Packer, o *outlet.Options) { pack.List(k, &o.Ports, pack.Number) })
	pack.Text(k, &h.Mode)
}

// Pack implements pack.Value.
func (h *Hold) Pack(k *pack.Packer) {
	pack.List(k, &h.Argv, pack.Text)
	pack.Text(k, &h.Line)
	pack.Text(k, &h.Dir)
	pack.List(k, &h.Env, pack.Text)
	pack.Flag(k, &h.Stdin)
	pack.Flag(k, &h.Merge)
	pack.Maybe(k, &h.PTY, packSize)
	pack.Flag(k, &h.Stdout)
	pack.Flag(k, &h.Stderr)
}

func packSize(k *pack.Packer, s *caisson.Winsize) {
	pack.Number(k, &s.Rows)
	pack.Number(k, &s.Cols)
}

// Pack implements pack.Value.
func (r *Resize) Pack(k *pack.Packer) { packSize(k, &r.Size) }

// Pack implements pack.Value.
func (h *Held) Pack(k *pack.Packer) {
	pack.Number(k, &h.Holder)
	pack.Number(k, &h.PID)
}

// Pack implements pack.Value.
func (s *Stop) Pack(k *pack.Packer) { pack.Number(k, &s.Grace) }

// Pack implements pack.Value.
func (s *Signal) Pack(k *pack.Packer) { pack.Number(k, &s.Signal) }

// Pack implements pack.Value.
func (e *Ended) Pack(k *pack.Packer) {
	pack.Number(k, &e.Code)
	pack.Number(k, &e.Signal)
	pack.Number(k, &e.CPU)
	pack.Number(k, &e.MaxRSS)
	pack.Number(k, &e.Left)
	pack.Text(k, &e.Exec)
	pack.Flag(k, &e.Closed)
}

// Pack implements pack.Value.
func (f *Failed) Pack(k *pack.Packer) {
	pack.Text(k, &f.Code)
	pack.Text(k, &f.Message)
	pack.Text(k, &f.Hint)
}

// Pack implements pack.Value.
func (f *File) Pack(k *pack.Packer) {
	pack.Text(k, &f.Op)
	pack.Text(k, &f.Path)
	pack.Text(k, &f.Pattern)
	pack.Text(k, &f.Include)
	pack.Number(k, &f.Offset)
	pack.Number(k, &f.Limit)
	pack.Number(k, &f.Context)
	pack.Number(k, &f.Size)
	pack.Text(k, &f.Expect)
	pack.Flag(k, &f.Create)
	pack.Number(k, &f.Mode)
	pack.Flag(k, &f.Parents)
}

// Pack implements pack.Value.
func (d *Done) Pack(k *pack.Packer) {
	pack.Maybe(k, &d.Info, packInfo)
	pack.Number(k, &d.Total)
	pack.Number(k, &d.Skipped)
}

// firstSecond and lastSecond are of the years 1 and 9999, beyond which a time has no
// text; the latter is early by a day, for the zones. Some file systems have files of
// any time, and a guest can say so of others.
const (
	firstSecond = -62135596800
	lastSecond  = 253402214400
)

func packInfo(k *pack.Packer, i *Info) {
	pack.Number(k, &i.Size)
	pack.Number(k, &i.Mode)
	pack.Text(k, &i.Kind)
	seconds, rest := i.ModTime.Unix(), int64(i.ModTime.Nanosecond())
	pack.Number(k, &seconds)
	pack.Number(k, &rest)
	i.ModTime = time.Unix(min(max(seconds, firstSecond), lastSecond), min(max(rest, 0), 1e9-1))
	pack.Text(k, &i.Digest)
}
