//go:build linux

package outlet

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Ranges of made-up addresses. The first is set aside for measurements between
// networks (RFC 2544) and is never routed; the second is all lo's already.
var (
	ownRange      = [4]byte{198, 18, 0, 0}
	loopbackRange = [4]byte{127, 18, 0, 0}
	// ownAddr is lo's address in ownRange: programs that look which addresses
	// there are, as resolvers do before they ask for one, find an IPv4 address
	// that is not 127.0.0.1. A server that is bound to it is reached.
	ownAddr = [4]byte{198, 18, 0, 1}
	mask15  = [4]byte{255, 254, 0, 0}
)

const (
	tableName  = "caisson"
	chainName  = "out"
	loopbackIf = 1 // of every network namespace
)

// AddRange gives lo an address with the whole range: on lo that makes all of it
// local. Open does it; afterwards nobody may.
func AddRange() error {
	head := make([]byte, 8) // struct ifaddrmsg
	head[0], head[1], head[3] = unix.AF_INET, 15, unix.RT_SCOPE_HOST
	put32(head, 4, loopbackIf)
	err := exchange(unix.NETLINK_ROUTE, message{
		kind: unix.RTM_NEWADDR, flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL | unix.NLM_F_ACK, head: head,
		attrs: []attr{{kind: unix.IFA_LOCAL, data: ownAddr[:]}, {kind: unix.IFA_ADDRESS, data: ownAddr[:]}},
	})
	if err != nil {
		return fmt.Errorf("add addresses to lo: %w", err)
	}
	return nil
}

// addRules leads TCP connections from inside to the range to directPort. The
// kernel remembers where each was meant to go.
func addRules() error {
	const table, chain, rule = unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_NEWRULE
	err := exchange(unix.NETLINK_NETFILTER,
		message{kind: unix.NFNL_MSG_BATCH_BEGIN, head: []byte{unix.AF_UNSPEC, 0, 0, unix.NFNL_SUBSYS_NFTABLES}},
		ruleMessage(table, text(unix.NFTA_TABLE_NAME, tableName)),
		ruleMessage(chain,
			text(unix.NFTA_CHAIN_TABLE, tableName), text(unix.NFTA_CHAIN_NAME, chainName),
			nest(unix.NFTA_CHAIN_HOOK, number(unix.NFTA_HOOK_HOOKNUM, unix.NF_INET_LOCAL_OUT), number(unix.NFTA_HOOK_PRIORITY, ^uint32(99))),
			text(unix.NFTA_CHAIN_TYPE, "nat")),
		ruleMessage(rule,
			text(unix.NFTA_RULE_TABLE, tableName), text(unix.NFTA_RULE_CHAIN, chainName),
			nest(unix.NFTA_RULE_EXPRESSIONS, redirect()...)),
		message{kind: unix.NFNL_MSG_BATCH_END, head: []byte{unix.AF_UNSPEC, 0, 0, unix.NFNL_SUBSYS_NFTABLES}},
	)
	if err != nil {
		return fmt.Errorf("add rules: %w", err)
	}
	return nil
}

func ruleMessage(kind uint16, attrs ...attr) message {
	return message{
		kind: unix.NFNL_SUBSYS_NFTABLES<<8 | kind, flags: unix.NLM_F_CREATE | unix.NLM_F_ACK,
		head: []byte{unix.NFPROTO_IPV4, 0, 0, 0}, attrs: attrs,
	}
}

// redirect is: meta l4proto tcp, ip daddr != ownAddr, ip daddr in the range,
// redirect to directPort.
func redirect() []attr {
	const (
		reg         = unix.NFT_REG_1
		destination = 16 // offset in the IPv4 header
	)
	return []attr{
		expression("meta", number(unix.NFTA_META_KEY, unix.NFT_META_L4PROTO), number(unix.NFTA_META_DREG, reg)),
		expression("cmp", number(unix.NFTA_CMP_SREG, reg), number(unix.NFTA_CMP_OP, unix.NFT_CMP_EQ), data(unix.NFTA_CMP_DATA, unix.IPPROTO_TCP)),
		expression("payload",
			number(unix.NFTA_PAYLOAD_DREG, reg), number(unix.NFTA_PAYLOAD_BASE, unix.NFT_PAYLOAD_NETWORK_HEADER),
			number(unix.NFTA_PAYLOAD_OFFSET, destination), number(unix.NFTA_PAYLOAD_LEN, 4)),
		expression("cmp", number(unix.NFTA_CMP_SREG, reg), number(unix.NFTA_CMP_OP, unix.NFT_CMP_NEQ), data(unix.NFTA_CMP_DATA, ownAddr[:]...)),
		expression("bitwise",
			number(unix.NFTA_BITWISE_SREG, reg), number(unix.NFTA_BITWISE_DREG, reg), number(unix.NFTA_BITWISE_LEN, 4),
			data(unix.NFTA_BITWISE_MASK, mask15[:]...), data(unix.NFTA_BITWISE_XOR, 0, 0, 0, 0)),
		expression("cmp", number(unix.NFTA_CMP_SREG, reg), number(unix.NFTA_CMP_OP, unix.NFT_CMP_EQ), data(unix.NFTA_CMP_DATA, ownRange[:]...)),
		expression("immediate", number(unix.NFTA_IMMEDIATE_DREG, reg), data(unix.NFTA_IMMEDIATE_DATA, directPort>>8, directPort&0xff)),
		expression("redir", number(unix.NFTA_REDIR_REG_PROTO_MIN, reg)),
	}
}

func expression(name string, attrs ...attr) attr {
	return nest(unix.NFTA_LIST_ELEM, text(unix.NFTA_EXPR_NAME, name), nest(unix.NFTA_EXPR_DATA, attrs...))
}
