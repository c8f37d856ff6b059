package plan

import (
	"fmt"
	"strings"
)

// HostPrefix is what every box's name begins with.
const HostPrefix = "box-s"

// HostName is the name of the box: its sandbox's id begins with s.
func (p *Plan) HostName() string { return HostPrefix + strings.TrimPrefix(p.ID, "s") }

// EtcFiles returns the files of /etc that are about the box itself, by name.
func (p *Plan) EtcFiles() map[string]string {
	host := p.HostName()
	return map[string]string{
		"passwd": "root:x:0:0:root:/root:/usr/sbin/nologin\n" +
			fmt.Sprintf("%s:x:%d:%d:%s:%s:/bin/sh\n", p.User, p.UID, p.GID, p.User, p.Home) +
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"group":         fmt.Sprintf("root:x:0:\n%s:x:%d:\nnogroup:x:65534:\n", p.User, p.GID),
		"hosts":         "127.0.0.1 localhost " + host + "\n::1 localhost " + host + "\n",
		"hostname":      host + "\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\nprotocols: files\n",
		"resolv.conf":   p.resolvers(),
	}
}

// resolvers is the text of resolv.conf.
func (p *Plan) resolvers() string {
	if p.Outlet == nil {
		return ""
	}
	return "nameserver 127.0.0.1\n"
}
