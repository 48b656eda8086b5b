package endpointconf

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	endpointField     = "endpointUrl"
	maxEndpointLength = 2048
)

// metadataHosts are names under which clouds serve a machine's credentials. They are rejected by name as well: a
// resolver may return an address that is on no list, and a delivery proxy resolves names by itself.
var metadataHosts = []string{
	"metadata", "metadata.goog", "metadata.tencentyun.com", "metadata.packet.net", "metadata.platformequinix.com",
	"api.metadata.cloud.ibm.com", "instance-data",
}

// isMetadataHost also knows names in the clouds' private domains, such as metadata.google.internal and
// instance-data.eu-central-1.compute.internal. The host is in lower case without a final dot.
func isMetadataHost(host string) bool {
	first, _, _ := strings.Cut(host, ".")
	private := strings.HasSuffix(host, ".internal") && (first == "metadata" || first == "instance-data")
	return private || slices.Contains(metadataHosts, host)
}

// EndpointURL parses the URL of an endpoint. Its error is a *ValidationError on endpointUrl, which does not repeat the
// URL: the query may be a secret. A literal address is checked here, the addresses of a name when it is called.
func EndpointURL(raw string, allow []netip.Prefix) (*url.URL, error) {
	if len(raw) > maxEndpointLength {
		return nil, endpointError("must be %d characters or less", maxEndpointLength)
	}
	if problem := EncodingProblem(raw); problem != "" {
		return nil, endpointError("%s", problem)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, endpointError("must be a URL")
	}
	if err := endpointForm(raw, u); err != nil {
		return nil, err
	}
	if err := endpointHost(u.Hostname(), allow); err != nil {
		return nil, err
	}
	if err := endpointProtocol(u, allow); err != nil {
		return nil, err
	}
	return u, nil
}

// EncodingProblem describes the first character of a URL's path and query that is not percent-encoded but must be; ""
// if there is none. net/url accepts such a URL: a request would have another path, or a malformed request line.
// Source: RFC 3986, 2.1 and Appendix A. Brackets are allowed, which clients commonly send in queries.
func EncodingProblem(raw string) string {
	const allowed = "-._~:/?#[]@!$&'()*+,;=%"
	_, rest, _ := strings.Cut(raw, "//")
	rest = rest[strings.IndexAny(rest+"/", "/?#"):]
	for len(rest) > 0 {
		c, size := utf8.DecodeRuneInString(rest)
		character := rest[:size]
		if c == '%' && (len(rest) < 3 || !hexadecimal(rest[1]) || !hexadecimal(rest[2])) {
			return `must be percent-encoded: write "%" as %25 where it begins no code such as %20`
		}
		if !alphanumeric(c) && !strings.ContainsRune(allowed, c) {
			var encoded string
			for i := range len(character) {
				encoded += fmt.Sprintf("%%%02X", character[i])
			}
			return fmt.Sprintf("must be percent-encoded: write %q as %s", character, encoded)
		}
		rest = rest[size:]
	}
	return ""
}

func hexadecimal(c byte) bool { return strings.IndexByte("0123456789ABCDEFabcdef", c) >= 0 }

// BaseURL returns the URL without credentials, query and fragment, which may be shown.
func BaseURL(u *url.URL) string {
	base := *u
	base.User = nil
	base.RawQuery, base.ForceQuery = "", false
	base.Fragment, base.RawFragment = "", ""
	return base.String()
}

func endpointError(format string, args ...any) error {
	return invalid(endpointField, fmt.Sprintf(format, args...))
}

func endpointForm(raw string, u *url.URL) error {
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	hasPort := u.Port() != "" || strings.HasSuffix(u.Host, ":")
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return endpointError("must be an absolute http or https URL")
	case u.Hostname() == "":
		return endpointError("must name a host")
	case u.User != nil:
		return endpointError("must not contain a user name or password")
	case strings.Contains(raw, "#"):
		return endpointError("must not have a fragment")
	case hasPort && (err != nil || port == 0):
		return endpointError("must have a port from 1 to 65535")
	default:
		return nil
	}
}

func endpointHost(host string, allow []netip.Prefix) error {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if addr, err := netip.ParseAddr(host); err == nil {
		return endpointAddress(addr, allow)
	}
	switch {
	case !wellFormedHost(host):
		return endpointError("must name a host in ASCII letters, digits, '-', '_' and '.' (other scripts in punycode)")
	case endsInNumber(host):
		return endpointError("must write an IPv4 address as four decimal numbers")
	case host == "localhost" || strings.HasSuffix(host, ".localhost"):
		// Either of its two addresses must be open; Address checks the one that is dialed.
		err := endpointAddress(netip.AddrFrom4([4]byte{127, 0, 0, 1}), allow)
		if err == nil || endpointAddress(netip.IPv6Loopback(), allow) == nil {
			return nil
		}
		return err
	case isMetadataHost(host):
		return endpointError("must not name a cloud's metadata service")
	default:
		return nil
	}
}

func endpointAddress(addr netip.Addr, allow []netip.Prefix) error {
	if addr.Zone() != "" {
		return endpointError("must not have an IPv6 zone")
	}
	if at, reason := blocked(addr, allow); reason != "" {
		return endpointError("must not be at %s: %s", at, reason)
	}
	return nil
}

func wellFormedHost(host string) bool {
	notHost := func(r rune) bool { return !alphanumeric(r) && r != '-' && r != '_' }
	if len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, notHost) {
			return false
		}
	}
	return true
}

// endsInNumber reports whether resolvers may read the host as an IPv4 address: some read 2130706433, 0x7f000001,
// 0177.0.0.1 and 127.1 as 127.0.0.1. The check is that of the URL standard (WHATWG URL, "ends in a number"): no
// top-level domain is a number.
func endsInNumber(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	if digits, hex := strings.CutPrefix(last, "0x"); hex {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}
