package egress

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// refusedRanges repeats the ranges independently of the table: the IANA IPv4
// and IPv6 special-purpose address registries, without globally reachable
// ranges, and the ranges that embed IPv4 addresses.
var refusedRanges = []string{
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24",
	"192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
	"224.0.0.0/4", "240.0.0.0/4",
	"::/128", "::1/128", "::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48",
	"100::/64", "100:0:0:1::/64", "2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48",
	"3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
}

// localRanges are the ranges that Grant.Private opens.
var localRanges = []string{"10.0.0.0/8", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7"}

// metadata lists the addresses at which clouds hand out credentials.
var metadata = []string{
	"169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.0.23", "100.100.100.200", "192.0.0.192",
	"168.63.129.16", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fe80::a9fe:a9fe",
}

// ends returns the first and the last address of a range, and one in between.
func ends(text string) []netip.Addr {
	p := netip.MustParsePrefix(text)
	last, middle := p.Addr().AsSlice(), p.Addr().AsSlice()
	for i := p.Bits(); i < len(last)*8; i++ {
		last[i/8] |= 0x80 >> (i % 8)
		if i%2 == 0 {
			middle[i/8] |= 0x80 >> (i % 8)
		}
	}
	a, _ := netip.AddrFromSlice(last)
	b, _ := netip.AddrFromSlice(middle)
	return []netip.Addr{p.Addr(), a, b}
}

// embeddings returns the IPv6 addresses that carry an IPv4 address inside.
func embeddings(a netip.Addr) []netip.Addr {
	b := a.As4()
	var all []netip.Addr
	for _, format := range []string{
		"::ffff:%02x%02x:%02x%02x",          // mapped
		"::%02x%02x:%02x%02x",               // compatible
		"::ffff:0:%02x%02x:%02x%02x",        // translated
		"64:ff9b::%02x%02x:%02x%02x",        // NAT64
		"64:ff9b:1::%02x%02x:%02x%02x",      // local NAT64
		"2002:%02x%02x:%02x%02x::1",         // 6to4
		"2606:4700::5efe:%02x%02x:%02x%02x", // ISATAP
		"2606:4700::200:5efe:%02x%02x:%02x%02x",
	} {
		all = append(all, netip.MustParseAddr(fmt.Sprintf(format, b[0], b[1], b[2], b[3])))
	}
	// Teredo carries the client's address inverted.
	return append(all, netip.MustParseAddr(fmt.Sprintf("2001:0:1:2:3:4:%02x%02x:%02x%02x", ^b[0], ^b[1], ^b[2], ^b[3])))
}

func TestSpecialRangesAreRefused(t *testing.T) {
	if got := len(specialRanges); got < len(refusedRanges) {
		t.Errorf("%d ranges, want at least %d", got, len(refusedRanges))
	}
	for _, text := range refusedRanges {
		for _, a := range ends(text) {
			if refuse(a, false) == "" {
				t.Errorf("%v of %s passes", a, text)
			}
			if !a.Is4() {
				continue
			}
			for _, e := range embeddings(a) {
				if refuse(e, false) == "" || refuse(e, true) == "" {
					t.Errorf("%v, which carries %v of %s, passes", e, a, text)
				}
			}
		}
	}
}

func TestMetadataServicesAreRefusedAlways(t *testing.T) {
	for _, text := range metadata {
		for _, local := range []bool{false, true} {
			if refuse(netip.MustParseAddr(text), local) == "" {
				t.Errorf("%s passes with private addresses allowed: %v", text, local)
			}
		}
	}
}

func TestPrivateOpensThePrivateRangesOnly(t *testing.T) {
	open := map[string]bool{}
	for _, text := range localRanges {
		open[text] = true
	}
	for _, text := range refusedRanges {
		for _, a := range ends(text) {
			if why := refuse(a, true); (why == "") != open[text] {
				t.Errorf("%v of %s with private addresses allowed: %q", a, text, why)
			}
		}
	}
}

func TestPublicAddressesPass(t *testing.T) {
	for _, text := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
		"128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0",
		"192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
		"2606:4700:4700::1111", "2a00:1450::1", "2001:4860:4860::8888", "2001:200::1",
	} {
		if why := refuse(netip.MustParseAddr(text), false); why != "" {
			t.Errorf("%s is refused: %s", text, why)
		}
	}
}

func TestIPv6OutsideGlobalUnicastIsRefused(t *testing.T) {
	for _, text := range []string{"4000::1", "1000::1", "e000::1", "fe00::1", "2606:4700::1%eth0", "fe80::1%1"} {
		if refuse(netip.MustParseAddr(text), true) == "" {
			t.Errorf("%s passes", text)
		}
	}
	if refuse(netip.Addr{}, true) == "" {
		t.Error("the zero address passes")
	}
}

func TestNoAddressOfARefusedRangePasses(t *testing.T) {
	var prefixes []netip.Prefix
	for _, text := range refusedRanges {
		prefixes = append(prefixes, netip.MustParsePrefix(text))
	}
	rapid.Check(t, func(t *rapid.T) {
		a, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4"))
		if rapid.Bool().Draw(t, "v6") {
			a, _ = netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "addr"))
		}
		if refuse(a, false) != "" {
			return
		}
		for _, p := range prefixes {
			if p.Contains(a) {
				t.Fatalf("%v of %v passes", a, p)
			}
		}
	})
}
