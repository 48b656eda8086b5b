package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/internal/endpointconf"
	"postrider/internal/query"
	"postrider/internal/terminal"
)

const (
	egressTimeout = 5 * time.Second // for resolving a name, and again for connecting
	// checkedHosts limits the hosts of stored endpoints that are checked, those of the most event subscriptions first:
	// a name can take seconds to resolve.
	checkedHosts = 50
)

// checkStored checks the addresses of the stored endpoints without connecting. Problems are warnings: the service may
// have other flags.
func (f *findings) checkStored(ctx context.Context, pool *pgxpool.Pool, out egressFlags) {
	stored, err := query.ReadEndpointHosts(ctx, pool, checkedHosts)
	f.warn("egress", err != nil, fmt.Sprintf("the stored endpoints cannot be read: %v", err), "read PostgreSQL's log")
	if len(stored) == 0 {
		f.ok("egress", "no event subscription has an endpoint yet")
		return
	}
	wrong := make([]findings, len(stored))
	var lookups sync.WaitGroup
	for i, h := range stored {
		lookups.Go(func() { _, _ = wrong[i].checkAddresses(ctx, h.URL, out) })
	}
	lookups.Wait()
	good := 0
	for i, h := range stored {
		good += terminal.Either(len(wrong[i]) == 0, 1, 0)
		for _, one := range wrong[i] {
			f.warn("egress", true, fmt.Sprintf("of %s, such as %s: %s",
				terminal.Plural(h.Subscriptions, "event subscription"), h.Example, one.Message),
				one.Remedy+"; run doctor with the flags of the service")
		}
	}
	f.add(good > 0, finding{ok, "egress", terminal.Plural(good, "host") + " of stored endpoints may be called" +
		terminal.Either(out.DeliveryProxy == "", "", " by their URLs; the proxy checks the addresses"), ""})
	left := stored[0].Hosts - len(stored)
	f.warn("egress", left > 0, terminal.Plural(left, "further host")+
		" of stored endpoints, with the fewest event subscriptions, were not checked", "check them with --endpoint")
}

// checkEgress checks an endpoint as the service does before a call, and connects to it. Findings omit the query of the
// URL, which may be a secret.
func (f *findings) checkEgress(ctx context.Context, endpoint string, out egressFlags) {
	u, open := f.checkAddresses(ctx, endpoint, out)
	if u == nil {
		return
	}
	reached, began := endpointconf.BaseURL(u)+" may be called", time.Now()
	if out.DeliveryProxy != "" {
		f.add(true, finding{ok, "egress", reached + " by its URL; the proxy checks the addresses", ""})
		return
	}
	state, err := connectTo(ctx, u, open)
	took := time.Since(began).Round(time.Millisecond).String()
	trust, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	if untrusted {
		f.warn("egress", true, fmt.Sprintf("%s: %v", endpointconf.BaseURL(u), trust.Err),
			"install a valid certificate at the endpoint, or set certificateAuthorities of the event subscription")
	}
	f.warn("egress", err != nil && !untrusted, fmt.Sprintf("%s, but does not respond: %v", reached, err),
		"check the endpoint, and the firewalls between this machine and it")
	if state != nil {
		took += " with " + tls.VersionName(state.Version) + ", certificate until " +
			state.PeerCertificates[0].NotAfter.UTC().Format(time.DateOnly)
	}
	f.add(err == nil, finding{
		ok, "egress", fmt.Sprintf("%s and responds in %s (%s)", reached, took, terminal.Plural(len(open), "address")), "",
	})
}

// checkAddresses checks the URL of an endpoint and the addresses of its host, as the service does before a call. It
// returns a nil URL if the endpoint may not be called, else the allowed addresses (none if a proxy resolves the name).
func (f *findings) checkAddresses(ctx context.Context, endpoint string, out egressFlags) (*url.URL, []netip.Addr) {
	u, err := endpointconf.EndpointURL(endpoint, out.AllowCIDR)
	if err == nil && !out.AllowHTTP {
		err = endpointconf.PlainEndpoint(u, out.AllowCIDR)
	}
	if err == nil && out.DeliveryProxy != "" {
		err = endpointconf.ProxiedPort(u)
	}
	remedy := "use a public https URL, or start serve with --allow-cidr and the endpoint's range if it may be called"
	if u != nil && u.Scheme == "http" {
		remedy = "use https; or start serve with --allow-cidr and the endpoint's range, or with --allow-http for public " +
			"addresses"
	}
	if f.fail("egress", err != nil, fmt.Sprintf("the endpoint: %v", err), remedy) {
		return nil, nil
	}
	if out.DeliveryProxy != "" {
		return u, nil
	}
	host := endpointconf.BaseURL(u)
	ctx, cancel := context.WithTimeout(ctx, egressTimeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if f.fail("egress", err != nil, fmt.Sprintf("%s: %v", host, err),
		"fix the name or this machine's resolver; attempts fail with ResolutionError") {
		return nil, nil
	}
	open, rejected := out.partition(u, addresses)
	why := strings.Join(rejected, "; ")
	if f.fail("egress", len(open) == 0, host+": "+why, remedy) {
		return nil, nil
	}
	f.warn("egress", len(rejected) > 0,
		fmt.Sprintf("%s: of %s, %s", host, terminal.Plural(len(addresses), "address"), why),
		"attempts to these addresses fail: change the DNS name, or allow the range with --allow-cidr")
	return u, open
}

// partition returns the addresses that may be called, and the errors of the others.
func (f egressFlags) partition(u *url.URL, addresses []netip.Addr) (open []netip.Addr, rejected []string) {
	port, _ := strconv.ParseUint(u.Port(), 10, 16) // 0 is the scheme's port
	for _, a := range addresses {
		err := endpointconf.Address(a, f.AllowCIDR)
		if err == nil {
			err = endpointconf.Port(netip.AddrPortFrom(a, uint16(port)), f.AllowCIDR)
		}
		if err == nil && u.Scheme == "http" && !f.AllowHTTP {
			err = endpointconf.PlainAddress(a, f.AllowCIDR)
		}
		if err != nil {
			rejected = append(rejected, err.Error())
		} else {
			open = append(open, a)
		}
	}
	return open, rejected
}

// connectTo connects to the first address that accepts, with TLS for https. state is nil without TLS.
func connectTo(ctx context.Context, u *url.URL, addresses []netip.Addr) (state *tls.ConnectionState, err error) {
	ctx, cancel := context.WithTimeout(ctx, egressTimeout)
	defer cancel()
	port, dial := cmp.Or(u.Port(), "80"), new(net.Dialer).DialContext
	if u.Scheme == "https" {
		port = cmp.Or(u.Port(), "443")
		dial = (&tls.Dialer{Config: &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}}).DialContext
	}
	for _, a := range addresses {
		conn, failed := dial(ctx, "tcp", net.JoinHostPort(a.String(), port))
		if err = failed; err != nil {
			continue
		}
		if secure, ok := conn.(*tls.Conn); ok {
			state = new(secure.ConnectionState())
		}
		_ = conn.Close()
		return state, nil
	}
	return nil, err
}
