package main

import (
	"net/netip"
	"net/url"

	"postrider/cmd/postrider/terminal"
)

// egressFlags say which addresses deliveries may go to, and how, see docs/endpoints.md.
type egressFlags struct {
	AllowCIDR     []string `name:"allow-cidr" help:"Address ranges that endpoints may be in although they are private, for example 10.1.0.0/16." env:"POSTRIDER_ALLOW_CIDR" placeholder:"CIDR"`
	AllowHTTP     bool     `name:"allow-http" help:"Endpoints at public addresses may have http URLs; those in --allow-cidr always may." env:"POSTRIDER_ALLOW_HTTP"`
	DeliveryProxy string   `help:"Requests to endpoints go through this proxy (http, https or socks5), which then has to refuse private addresses." env:"POSTRIDER_DELIVERY_PROXY" placeholder:"URL"`
}

// egress is what they say.
type egress struct {
	allow     []netip.Prefix
	allowHTTP bool
	proxy     *url.URL // nil = none
}

func (f egressFlags) parse() (e egress, err error) {
	e.allowHTTP = f.AllowHTTP
	if e.allow, err = parsePrefixes("--allow-cidr", f.AllowCIDR); err != nil || f.DeliveryProxy == "" {
		return e, err
	}
	u, err := url.Parse(f.DeliveryProxy)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5" || u.Hostname() == "" {
		// it may hold a password
		return e, terminal.Usagef("--delivery-proxy: not a URL such as http://proxy.example.com:3128")
	}
	e.proxy = u
	return e, nil
}
