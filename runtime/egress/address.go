package egress

import (
	"net/netip"
	"strings"
)

// addressRange is one range that is not part of the public internet.
type addressRange struct {
	prefix netip.Prefix
	name   string
	local  bool // may be opened by Grant.Private
}

// specialRanges holds the ranges of the IANA special-purpose address registries
// (RFC 6890) that are not globally reachable, the prefixes that embed an IPv4
// address, and the metadata services of clouds outside of link-local space. The
// first entry that contains an address names it, so narrower ranges come first.
//
// The table is spelled out because the predicates of net/netip (IsPrivate,
// IsLoopback, ...) let most of it through.
var specialRanges = []addressRange{
	special("168.63.129.16/32", "cloud metadata (Azure)"),
	special("0.0.0.0/8", "this network, RFC 791"),
	private("10.0.0.0/8", "private, RFC 1918"),
	special("100.64.0.0/10", "shared address space, RFC 6598"), // holds Alibaba's metadata service
	private("127.0.0.0/8", "loopback, RFC 1122"),
	special("169.254.0.0/16", "link-local, RFC 3927"), // holds most metadata services
	private("172.16.0.0/12", "private, RFC 1918"),
	special("192.0.0.0/24", "IETF protocol assignments, RFC 6890"), // holds Oracle's metadata service
	special("192.0.2.0/24", "documentation, RFC 5737"),
	special("192.31.196.0/24", "AS112, RFC 7535"),
	special("192.52.193.0/24", "AMT, RFC 7450"),
	special("192.88.99.0/24", "6to4 relay, RFC 7526"),
	private("192.168.0.0/16", "private, RFC 1918"),
	special("192.175.48.0/24", "AS112, RFC 7534"),
	special("198.18.0.0/15", "benchmarking, RFC 2544"),
	special("198.51.100.0/24", "documentation, RFC 5737"),
	special("203.0.113.0/24", "documentation, RFC 5737"),
	special("224.0.0.0/4", "multicast, RFC 5771"),
	special("240.0.0.0/4", "reserved, RFC 1112"),

	special("fd00:ec2::/32", "cloud metadata (AWS)"),
	special("fd20:ce::/32", "cloud metadata (Google)"),
	special("fd00:c1::/32", "cloud metadata (Oracle)"),
	special("::/128", "unspecified, RFC 4291"),
	private("::1/128", "loopback, RFC 4291"),
	special("::/96", "IPv4-compatible, RFC 4291"),
	special("::ffff:0:0/96", "IPv4-mapped, RFC 4291"),
	special("::ffff:0:0:0/96", "IPv4-translated, RFC 2765"),
	special("64:ff9b::/96", "NAT64, RFC 6052"),
	special("64:ff9b:1::/48", "local-use NAT64, RFC 8215"),
	special("100::/64", "discard, RFC 6666"),
	special("100:0:0:1::/64", "dummy prefix, RFC 9780"),
	special("2001::/23", "IETF protocol assignments, RFC 2928"), // holds Teredo
	special("2001:db8::/32", "documentation, RFC 3849"),
	special("2002::/16", "6to4, RFC 3056"),
	special("2620:4f:8000::/48", "AS112, RFC 7534"),
	special("3fff::/20", "documentation, RFC 9637"),
	special("5f00::/16", "SRv6 segments, RFC 9602"),
	private("fc00::/7", "unique local, RFC 4193"),
	special("fe80::/10", "link-local, RFC 4291"),
	special("fec0::/10", "site-local, RFC 3879"),
	special("ff00::/8", "multicast, RFC 4291"),
}

func special(prefix, name string) addressRange {
	return addressRange{prefix: netip.MustParsePrefix(prefix), name: name}
}

func private(prefix, name string) addressRange {
	return addressRange{prefix: netip.MustParsePrefix(prefix), name: name, local: true}
}

// globalUnicast is the only IPv6 space that IANA has handed out for unicast.
var globalUnicast = netip.MustParsePrefix("2000::/3")

// refuse returns the reason why a may not be connected to, or "". With local
// set, loopback and private addresses pass.
func refuse(a netip.Addr, local bool) string {
	switch {
	case !a.IsValid():
		return "not an address"
	case a.Zone() != "":
		return "an address with a zone"
	case a.Is6() && isISATAP(a):
		return "ISATAP, RFC 5214"
	}
	for _, r := range specialRanges {
		if !r.prefix.Contains(a) {
			continue
		}
		if local && r.local {
			return ""
		}
		return r.name
	}
	if a.Is6() && !globalUnicast.Contains(a) {
		return "outside of global unicast, RFC 4291"
	}
	return ""
}

// RefusedAddress returns the reason why nothing connects to a host that is an
// address, as written in a URL, or "" if it is allowed. Private is whether loopback
// and private addresses are open. For a name it returns "": its addresses are known
// when it is resolved.
func RefusedAddress(host string, private bool) string {
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		return ""
	}
	return refuse(addr.Unmap(), private)
}

// isISATAP reports whether the interface identifier embeds an IPv4 address as
// RFC 5214 section 6.1 does: 00-00-5E-FE or 02-00-5E-FE and the address.
func isISATAP(a netip.Addr) bool {
	b := a.As16()
	return b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}
