package policy

import (
	"net/netip"
	"net/url"
	"strings"
)

// IsLocalHost reports whether a request's Host, with or without a port, is localhost or an IP address. DNS rebinding
// points the name of another site at 127.0.0.1; a browser then sends that name. An address cannot be rebound.
func IsLocalHost(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	_, err := netip.ParseAddr(name)
	return err == nil || strings.EqualFold(name, "localhost")
}
