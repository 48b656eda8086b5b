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

	"postrider/cmd/postrider/terminal"
	"postrider/policy"
	"postrider/query"
)

const (
	// egressTimeout is for resolving a name, and again for connecting: half of the deliveries to an endpoint that takes
	// longer would fail.
	egressTimeout = 5 * time.Second
	// checkedHosts is how many hosts of stored endpoints are checked, those of the most event subscriptions first: a name
	// may take seconds to resolve.
	checkedHosts = 50
)

// checkStored checks the hosts of the stored endpoints by their addresses, and connects to none. Problems are warnings:
// the service may have other flags than this doctor.
func checkStored(ctx context.Context, found *findings, pool *pgxpool.Pool, out egressFlags) {
	const check = "egress"
	stored, err := query.ReadEndpointHosts(ctx, pool, checkedHosts)
	switch {
	case err != nil:
		found.warn(check, fmt.Sprintf("the stored endpoints cannot be read: %v", err), "read PostgreSQL's log")
		return
	case len(stored.Hosts) == 0:
		found.ok(check, "no event subscription has an endpoint yet")
		return
	}
	wrong := make([]findings, len(stored.Hosts))
	var lookups sync.WaitGroup // all at once: slow names take no longer than one
	for i, h := range stored.Hosts {
		lookups.Go(func() { _, _ = checkAddresses(ctx, &wrong[i], h.URL, out) })
	}
	lookups.Wait()
	good := 0
	for i, h := range stored.Hosts {
		for _, f := range wrong[i] {
			found.warn(check,
				fmt.Sprintf("of %s, such as %s: %s", terminal.Plural(h.Subscriptions, "event subscription"), h.Example, f.Says),
				f.Remedy+"; if the service has other flags, use them here too")
		}
		good += terminal.Either(len(wrong[i]) == 0, 1, 0)
	}
	if good > 0 {
		found.ok(check, "%s of stored endpoints may be called%s", terminal.Plural(good, "host"),
			terminal.Either(out.DeliveryProxy == "", "", " by their URLs: the proxy decides about the addresses of their names"))
	}
	left := stored.All - len(stored.Hosts)
	found.check(check, "", problem{
		left > 0, warn, terminal.Plural(left, "further host") +
			" of stored endpoints, those of the fewest event subscriptions, were not checked",
		"check one of them with --endpoint",
	})
}

// checkEgress checks an endpoint as the service does when it calls one, and connects to it. What it reports has no
// query, which may be a secret.
func checkEgress(ctx context.Context, found *findings, endpoint string, out egressFlags) {
	const check = "egress"
	u, open := checkAddresses(ctx, found, endpoint, out)
	if u == nil {
		return
	}
	host, began := policy.BaseURL(u), time.Now()
	if out.DeliveryProxy != "" {
		found.ok(check, "%s has a URL that may be called; the proxy decides about the addresses of its name", host)
		return
	}
	state, err := connectTo(ctx, u, open)
	took, addresses := time.Since(began).Round(time.Millisecond), terminal.Plural(len(open), "address")
	var trust *tls.CertificateVerificationError
	switch {
	case errors.As(err, &trust):
		found.warn(check, fmt.Sprintf("%s: %v", host, trust.Err), "give the endpoint a valid certificate, or its event "+
			"subscription the certificate of its authority in certificateAuthorities")
	case err != nil:
		found.warn(check, fmt.Sprintf("%s may be called, but does not answer from here: %v", host, err),
			"check the endpoint, and the firewalls between this machine and it")
	case state != nil:
		found.ok(check, "%s may be called and answers in %s with %s, certificate until %s (%s)", host, took,
			tls.VersionName(state.Version), state.PeerCertificates[0].NotAfter.UTC().Format(time.DateOnly), addresses)
	default:
		found.ok(check, "%s may be called and answers in %s (%s)", host, took, addresses)
	}
}

// checkAddresses checks an endpoint by its URL and the addresses of its name, as the service does when it calls one. It
// returns nil if the endpoint may not be called, and the addresses that may be, none if a proxy resolves the name.
func checkAddresses(
	ctx context.Context, found *findings, endpoint string, out egressFlags,
) (called *url.URL, open []netip.Addr) {
	const check = "egress"
	u, err := policy.EndpointURL(endpoint, out.AllowCIDR)
	if err == nil && !out.AllowHTTP {
		err = policy.PlainEndpoint(u, out.AllowCIDR)
	}
	if err == nil && out.DeliveryProxy != "" {
		err = policy.ProxiedPort(u)
	}
	remedy := "use a public https URL, or start serve with --allow-cidr and the endpoint's range if it may be called"
	if u != nil && u.Scheme == "http" {
		remedy = "use https; or start serve with --allow-cidr and the endpoint's range, or with --allow-http for public " +
			"addresses"
	}
	if err != nil {
		found.fail(check, fmt.Sprintf("the endpoint: %v", err), remedy)
		return nil, nil
	}
	if out.DeliveryProxy != "" {
		return u, nil
	}
	host := policy.BaseURL(u)
	ctx, cancel := context.WithTimeout(ctx, egressTimeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		found.fail(check, fmt.Sprintf("%s: %v", host, err),
			"correct the name, or this machine's resolver: attempts end as ResolutionError")
		return nil, nil
	}
	open, rejected := out.partition(u, addresses)
	if len(open) == 0 {
		found.fail(check, host+": "+strings.Join(rejected, "; "), remedy)
		return nil, nil
	}
	found.check(check, "", problem{
		len(rejected) > 0, warn,
		fmt.Sprintf("%s: of %s, %s", host, terminal.Plural(len(addresses), "address"), strings.Join(rejected, "; ")),
		"attempts that meet these addresses fail: change the name, or open the range with --allow-cidr",
	})
	return u, open
}

// partition divides the addresses of an endpoint into those that may be called and the reasons against the others.
func (f egressFlags) partition(u *url.URL, addresses []netip.Addr) (open []netip.Addr, rejected []string) {
	port, _ := strconv.ParseUint(u.Port(), 10, 16) // 0 if it is the scheme's own
	for _, a := range addresses {
		err := policy.Address(a, f.AllowCIDR)
		if err == nil {
			err = policy.Port(netip.AddrPortFrom(a, uint16(port)), f.AllowCIDR)
		}
		if err == nil && u.Scheme == "http" && !f.AllowHTTP {
			err = policy.PlainAddress(a, f.AllowCIDR)
		}
		if err != nil {
			rejected = append(rejected, err.Error())
		} else {
			open = append(open, a)
		}
	}
	return open, rejected
}

// connectTo tries the addresses in order, with TLS if the URL has it, and sends nothing. state is nil without TLS.
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
