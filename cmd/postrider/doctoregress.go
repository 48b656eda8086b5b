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
	if len(stored) == 0 {
		f.check("egress", "no event subscription has an endpoint yet",
			warnIf(err != nil, fmt.Sprintf("the stored endpoints cannot be read: %v", err), "read PostgreSQL's log"))
		return
	}
	problems := make([]finding, len(stored))
	var lookups sync.WaitGroup
	for i, h := range stored {
		lookups.Go(func() { problems[i] = out.resolveTarget(ctx, h.URL) })
	}
	lookups.Wait()
	good := 0
	for i, h := range stored {
		good += terminal.Either(problems[i].Level == "", 1, 0)
		f.check("egress", "", warnIf(problems[i].Level != "", fmt.Sprintf("of %s, such as %s: %s",
			terminal.Plural(h.Subscriptions, "event subscription"), h.Example, problems[i].Message),
			problems[i].Remedy+"; run doctor with the flags of the service"))
	}
	if good > 0 {
		f.check("egress", terminal.Plural(good, "host")+" of stored endpoints may be called"+
			terminal.Either(out.DeliveryProxy == "", "", " by their URLs; the proxy checks the addresses"))
	}
	left := stored[0].Hosts - len(stored)
	f.check("egress", "", warnIf(left > 0, terminal.Plural(left, "further host")+
		" of stored endpoints, with the fewest event subscriptions, were not checked", "check them with --endpoint"))
}

// checkEgress checks an endpoint as the service does before a call, and connects to it. Findings omit the query of the
// URL, which may be a secret.
func (f *findings) checkEgress(ctx context.Context, endpoint string, out egressFlags) {
	u, open, problem := out.resolve(ctx, endpoint)
	f.check("egress", "", problem)
	switch {
	case u == nil:
		return
	case out.DeliveryProxy != "":
		f.check("egress", endpointconf.BaseURL(u)+" may be called by its URL; the proxy checks the addresses")
		return
	}
	host, began := endpointconf.BaseURL(u), time.Now()
	secured, err := connectTo(ctx, u, open)
	took := time.Since(began).Round(time.Millisecond)
	if trust, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
		f.check("egress", "", warnIf(true, fmt.Sprintf("%s: %v", host, trust.Err), "install a valid certificate at the "+
			"endpoint, or set certificateAuthorities of the event subscription"))
		return
	}
	addresses := terminal.Plural(len(open), "address")
	f.check("egress", fmt.Sprintf("%s may be called and responds in %s%s (%s)", host, took, secured, addresses),
		warnIf(err != nil, fmt.Sprintf("%s may be called, but does not respond: %v", host, err),
			"check the endpoint, and the firewalls between this machine and it"))
}

// resolveTarget is resolve for what an event subscription delivers to: the beginning of an endpoint's URL, or of
// another destination's target, such as kafka://a:9092,b:9092. One server of a broker is enough.
func (f egressFlags) resolveTarget(ctx context.Context, target string) (problem finding) {
	scheme, servers, _ := strings.Cut(target, "://")
	if scheme == "http" || scheme == "https" {
		_, _, problem = f.resolve(ctx, target)
		return problem
	}
	for server := range strings.SplitSeq(servers, ",") {
		if _, _, problem = f.resolve(ctx, "https://"+server); problem.Level == "" {
			return problem
		}
	}
	problem.Message = strings.ReplaceAll(problem.Message, "https://", scheme+"://")
	problem.Remedy = "correct the host in the destination, or start serve with --allow-cidr and its range if it may be " +
		"called"
	return problem
}

// resolve checks the URL of an endpoint and the addresses of its host, as the service does before a call. It returns a
// nil URL if the endpoint may not be called, else the allowed addresses (none if a proxy resolves the name).
func (f egressFlags) resolve(ctx context.Context, endpoint string) (*url.URL, []netip.Addr, finding) {
	u, err := endpointconf.EndpointURL(endpoint, f.AllowCIDR)
	if err == nil && !f.AllowHTTP {
		err = endpointconf.PlainEndpoint(u, f.AllowCIDR)
	}
	if err == nil && f.DeliveryProxy != "" {
		err = endpointconf.ProxiedPort(u)
	}
	remedy := "use a public https URL, or start serve with --allow-cidr and the endpoint's range if it may be called"
	if u != nil && u.Scheme == "http" {
		remedy = "use https; or start serve with --allow-cidr and the endpoint's range, or with --allow-http for public " +
			"addresses"
	}
	switch {
	case err != nil:
		return nil, nil, failIf(true, fmt.Sprintf("the endpoint: %v", err), remedy)
	case f.DeliveryProxy != "":
		return u, nil, finding{}
	}
	host := endpointconf.BaseURL(u)
	ctx, cancel := context.WithTimeout(ctx, egressTimeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return nil, nil, failIf(true, fmt.Sprintf("%s: %v", host, err),
			"fix the name or this machine's resolver; attempts fail with ResolutionError")
	}
	open, rejected := f.partition(u, addresses)
	why := strings.Join(rejected, "; ")
	if len(open) == 0 {
		return nil, nil, failIf(true, host+": "+why, remedy)
	}
	return u, open, warnIf(len(rejected) > 0,
		fmt.Sprintf("%s: of %s, %s", host, terminal.Plural(len(addresses), "address"), why),
		"attempts to these addresses fail: change the DNS name, or allow the range with --allow-cidr")
}

// partition returns the addresses that may be called, and the errors of the others.
func (f egressFlags) partition(u *url.URL, addresses []netip.Addr) (open []netip.Addr, rejected []string) {
	port, _ := strconv.ParseUint(u.Port(), 10, 16) // 0 is the scheme's port
	for _, a := range addresses {
		err := endpointconf.Dialed(netip.AddrPortFrom(a, uint16(port)), u.Scheme == "http" && !f.AllowHTTP, f.AllowCIDR)
		if err != nil {
			rejected = append(rejected, err.Error())
			continue
		}
		open = append(open, a)
	}
	return open, rejected
}

// connectTo connects to the first address that accepts, with TLS for https, which secured describes.
func connectTo(ctx context.Context, u *url.URL, addresses []netip.Addr) (secured string, err error) {
	ctx, cancel := context.WithTimeout(ctx, egressTimeout)
	defer cancel()
	port, dial := cmp.Or(u.Port(), "80"), new(net.Dialer).DialContext
	if u.Scheme == "https" {
		port = cmp.Or(u.Port(), "443")
		dial = (&tls.Dialer{Config: &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}}).DialContext
	}
	for _, a := range addresses {
		var conn net.Conn
		if conn, err = dial(ctx, "tcp", net.JoinHostPort(a.String(), port)); err != nil {
			continue
		}
		if secure, is := conn.(*tls.Conn); is {
			state := secure.ConnectionState()
			secured = " with " + tls.VersionName(state.Version) + ", certificate until " +
				state.PeerCertificates[0].NotAfter.UTC().Format(time.DateOnly)
		}
		_ = conn.Close()
		return secured, nil
	}
	return "", err
}
