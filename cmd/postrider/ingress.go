package main

import (
	"net/netip"

	"postrider/cmd/postrider/terminal"
	"postrider/server/auth"
)

// ingressFlags bound what comes in, and say who may speak for others, see docs/security.md.
type ingressFlags struct {
	TrustedProxies    []string `help:"Address ranges of the proxies before this service: their word for a client's address is taken." env:"POSTRIDER_TRUSTED_PROXIES" placeholder:"CIDR"`
	ForwardedHeader   string   `help:"Where those proxies write the client's address: x-forwarded-for or forwarded." enum:"x-forwarded-for,forwarded" default:"x-forwarded-for" env:"POSTRIDER_FORWARDED_HEADER"`
	RequestsPerSecond int      `help:"Requests a second of one credential on this node, beyond which it is answered 429; 0 = no limit." default:"0" env:"POSTRIDER_REQUESTS_PER_SECOND"`
	MaxConnections    int      `help:"Connections to this node at a time; more wait to be accepted." default:"10000" env:"POSTRIDER_MAX_CONNECTIONS"`
}

// ingress is what they say.
type ingress struct {
	trusted                   []netip.Prefix
	header                    auth.ForwardedHeader
	perSecond, maxConnections int
}

func (f ingressFlags) parse() (in ingress, err error) {
	in = ingress{header: auth.XForwardedFor, perSecond: f.RequestsPerSecond, maxConnections: f.MaxConnections}
	if f.ForwardedHeader == "forwarded" {
		in.header = auth.Forwarded
	}
	switch {
	case f.RequestsPerSecond < 0 || f.RequestsPerSecond > 1_000_000:
		return in, terminal.Usagef("--requests-per-second %d: must be 0 (no limit) to 1000000", f.RequestsPerSecond)
	case f.MaxConnections < 1 || f.MaxConnections > 1_000_000:
		return in, terminal.Usagef("--max-connections %d: must be 1 to 1000000", f.MaxConnections)
	}
	in.trusted, err = parsePrefixes("--trusted-proxies", f.TrustedProxies)
	return in, err
}
