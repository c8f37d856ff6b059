package sandbox

import (
	"strconv"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/outlet"
)

// ProxyEnv is what tells programs inside of the proxy of the way out. Many need
// no telling and ignore it; those that keep to it have their names judged by the
// host alone, and find out why they were refused.
//
// All say http, also the one for other protocols: programs that know of SOCKS
// only with a library that is not there would not start.
func ProxyEnv() []string {
	proxy := "http://127.0.0.1:" + strconv.Itoa(outlet.ProxyPort)
	const inside = "localhost,127.0.0.1,::1"
	return []string{
		"HTTP_PROXY=" + proxy, "HTTPS_PROXY=" + proxy, "ALL_PROXY=" + proxy, "NO_PROXY=" + inside,
		"http_proxy=" + proxy, "https_proxy=" + proxy, "all_proxy=" + proxy, "no_proxy=" + inside,
	}
}

// ProxyOnly says what a way out of [outlet.ModeProxy] is less good at.
const ProxyOnly = "only programs that keep to proxy variables (HTTPS_PROXY) reach the hosts that are open, and no others do"

// WithEgress is a report of a boundary without a network that was given a way
// out, of which the guest says how programs are led to it.
func WithEgress(i caisson.Isolation, mode outlet.Mode) caisson.Isolation {
	rows := make([]caisson.Enforcement, len(i.Controls))
	copy(rows, i.Controls)
	for n := range rows {
		if rows[n].Control != caisson.ControlNetwork || !rows[n].Enforced {
			continue
		}
		rows[n].By = "network namespace, proxy"
		switch mode {
		case outlet.ModePorts:
			rows[n].Why = "the kernel has no nf_tables: programs that do not know of the proxy reach only the ports that the rules named when the sandbox was opened, and servers inside cannot use those"
		case outlet.ModeLoopback:
			rows[n].Why = "the guest may not change its network here: programs that do not know of the proxy reach only the ports that the rules named when the sandbox was opened, and servers inside cannot use those"
		case outlet.ModeProxy:
			rows[n].Why = "names cannot be answered inside: " + ProxyOnly
		case outlet.ModeRedirect:
		}
	}
	i.Controls = rows
	return i
}
