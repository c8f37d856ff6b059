package plan

import (
	"github.com/caisson-run/caisson/guest/outlet"
	"github.com/caisson-run/caisson/guest/pack"
)

// Pack implements pack.Value.
func (p *Plan) Pack(k *pack.Packer) {
	pack.Text(k, &p.ID)
	pack.Number(k, &p.UID)
	pack.Number(k, &p.GID)
	pack.Text(k, &p.User)
	pack.Text(k, &p.Home)
	pack.Text(k, &p.Workspace)
	pack.List(k, &p.Private, pack.Text)
	pack.Number(k, &p.Tmp)
	pack.List(k, &p.Mounts, packMount)
	pack.List(k, &p.System, pack.Text)
	pack.List(k, &p.Etc, pack.Text)
	pack.Number(k, &p.Files)
	pack.Number(k, &p.Size)
	pack.Number(k, &p.Pids)
	pack.Number(k, &p.CPUs)
	pack.Text(k, &p.Proof)
	pack.Text(k, &p.Mask.File)
	pack.Text(k, &p.Mask.Dir)
	pack.Flag(k, &p.Ptrace)
	pack.Maybe(k, &p.Outlet, func(k *pack.Packer, o *outlet.Options) { pack.List(k, &o.Ports, pack.Number) })
	pack.Text(k, &p.OutletAt)
	pack.List(k, &p.Outside, pack.Text)
	pack.Text(k, &p.Socket)
	pack.List(k, &p.Needs, pack.Text)
}

func packMount(k *pack.Packer, m *Mount) {
	pack.Number(k, &m.FD)
	pack.Text(k, &m.Source)
	pack.Text(k, &m.Target)
	pack.Flag(k, &m.Write)
	pack.Flag(k, &m.Layer)
	pack.Flag(k, &m.Dir)
	pack.Number(k, &m.Dev)
	pack.Number(k, &m.Ino)
}

// Pack implements pack.Value.
func (r *Report) Pack(k *pack.Packer) {
	pack.Text(k, &r.Failed)
	pack.Number(k, &r.Errno)
	pack.Text(k, &r.Error)
	pack.Text(k, &r.Point)
	pack.Number(k, &r.Landlock)
	pack.List(k, &r.Tests, packTest)
	pack.Maybe(k, &r.Seen, packSeen)
}

func packTest(k *pack.Packer, t *Test) {
	pack.Text(k, &t.Control)
	pack.Text(k, &t.Tried)
	pack.Flag(k, &t.Read)
	pack.Text(k, &t.Broke)
}

func packSeen(k *pack.Packer, s *Seen) {
	pack.Text(k, &s.Boot)
	pack.Text(k, &s.Proof)
	pack.Text(k, &s.Arch)
	pack.Number(k, &s.Memory)
	pack.Number(k, &s.Pids)
	pack.Number(k, &s.CPUs)
	pack.List(k, &s.Missing, pack.Text)
	pack.List(k, &s.Inodes, pack.Number)
	pack.List(k, &s.Foreign, pack.Text)
}

// Pack implements pack.Value.
func (s *Stage) Pack(k *pack.Packer) {
	pack.Text(k, &s.Dir)
	pack.List(k, &s.Trees, func(k *pack.Packer, t *StageTree) {
		pack.Number(k, &t.FD)
		pack.Text(k, &t.Name)
		pack.Flag(k, &t.Dir)
	})
	pack.List(k, &s.Private, func(k *pack.Packer, p *StageSpace) {
		pack.Text(k, &p.Name)
		pack.Number(k, &p.Size)
		pack.Number(k, &p.Mode)
	})
	pack.Number(k, &s.UID)
	pack.Number(k, &s.GID)
	pack.List(k, &s.Arguments, pack.Text)
}
