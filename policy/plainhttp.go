package policy

import (
	"errors"
	"net/netip"
	"net/url"
)

// errPlainHTTP is why an address is not called without TLS.
var errPlainHTTP = errors.New("a public address is called by https only, unless the operator allows plain http " +
	"(--allow-http)")

// PlainAddress reports why a must not be called without TLS: whoever is on the way could read the events and answer for
// the endpoint. Networks that were opened are the operator's own. It is asked beside Address, with the address that is
// dialled.
func PlainAddress(a netip.Addr, allow []netip.Prefix) error {
	if opened(plain(a), allow) {
		return nil
	}
	return errPlainHTTP
}

// PlainEndpoint judges the scheme of an endpoint that EndpointURL has let through: a *ValidationError on endpointUrl
// where it is http and can be in no opened network. A name may be in one as soon as there is one: that is judged when
// it is called.
func PlainEndpoint(u *url.URL, allow []netip.Prefix) error {
	if u.Scheme == "https" {
		return nil
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil && len(allow) > 0 || err == nil && PlainAddress(addr, allow) == nil {
		return nil
	}
	return endpointError("must be https: plain http is for networks that --allow-cidr opens, unless the service runs " +
		"with --allow-http")
}
