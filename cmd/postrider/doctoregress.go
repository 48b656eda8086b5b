package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"postrider/cmd/postrider/terminal"
	"postrider/policy"
)

// egressTimeout is for resolving a name, and again for connecting: an endpoint that takes longer fails half of its
// deliveries.
const egressTimeout = 5 * time.Second

// judgeEgress judges an endpoint as the service does when it calls one, and connects to it. What it says names no
// query, which may be a secret.
func judgeEgress(ctx context.Context, found *findings, endpoint string, out egressFlags) {
	u, open, may := judgeAddresses(ctx, found, endpoint, out)
	switch {
	case !may:
	case out.DeliveryProxy != "":
		found.ok("egress", "%s has a URL that may be called; where its name leads, the proxy decides", policy.BaseURL(u))
	default:
		judgeConnection(ctx, found, u, open)
	}
}

// egressRemedy is what opens an endpoint that is refused; u is nil where it is no URL.
func egressRemedy(u *url.URL) string {
	if u != nil && u.Scheme == "http" {
		return "use https; or start serve with --allow-cidr and the endpoint's range, or with --allow-http for public " +
			"addresses"
	}
	return "use a public https URL, or start serve with --allow-cidr and the endpoint's range, if that is an address to " +
		"be called"
}

func lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, egressTimeout)
	defer cancel()
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// judge parts the addresses of an endpoint into those that may be called and why the others may not.
func (f egressFlags) judge(u *url.URL, addresses []netip.Addr) (open []netip.Addr, refused []string) {
	port, _ := strconv.ParseUint(u.Port(), 10, 16) // 0, which is nobody's, where it is the scheme's own
	for _, a := range addresses {
		err := policy.Address(a, f.AllowCIDR)
		if err == nil {
			err = policy.Port(netip.AddrPortFrom(a, uint16(port)), f.AllowCIDR)
		}
		if err == nil && u.Scheme == "http" && !f.AllowHTTP {
			err = policy.PlainAddress(a, f.AllowCIDR)
		}
		if err != nil {
			refused = append(refused, err.Error())
			continue
		}
		open = append(open, a)
	}
	return open, refused
}

// judgeConnection connects, with TLS where the URL says so, and sends nothing.
func judgeConnection(ctx context.Context, found *findings, u *url.URL, open []netip.Addr) {
	const check = "egress"
	host, began := policy.BaseURL(u), time.Now()
	state, err := connectTo(ctx, u, open)
	var trust *tls.CertificateVerificationError
	switch took := time.Since(began).Round(time.Millisecond); {
	case errors.As(err, &trust):
		found.warn(check, fmt.Sprintf("%s: %v", host, trust.Err), "have the endpoint show a certificate that holds, or "+
			"give its event subscription the authority's as certificateAuthorities")
	case err != nil:
		found.warn(check, fmt.Sprintf("%s may be called, but does not answer from here: %v", host, err),
			"look at the endpoint, and at firewalls on the way from this machine")
	case state != nil:
		found.ok(check, "%s may be called and answers in %s with %s, certificate until %s (%s)", host, took,
			tls.VersionName(state.Version), certificateEnd(state.PeerCertificates), terminal.Plural(len(open), "address"))
	default:
		found.ok(check, "%s may be called and answers in %s (%s)", host, took, terminal.Plural(len(open), "address"))
	}
}

// connectTo tries the addresses in their order; state is nil without TLS.
func connectTo(ctx context.Context, u *url.URL, addresses []netip.Addr) (state *tls.ConnectionState, err error) {
	ctx, cancel := context.WithTimeout(ctx, egressTimeout)
	defer cancel()
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	for _, a := range addresses {
		if state, err = connectOne(ctx, u, net.JoinHostPort(a.String(), port)); err == nil {
			return state, nil
		}
	}
	return nil, err
}

func connectOne(ctx context.Context, u *url.URL, address string) (*tls.ConnectionState, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if u.Scheme == "http" {
		return nil, nil
	}
	secure := tls.Client(conn, &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12})
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	state := secure.ConnectionState()
	return &state, nil
}

// certificateEnd is the day that the chain ends with its first certificate.
func certificateEnd(chain []*x509.Certificate) string {
	if len(chain) == 0 {
		return "-"
	}
	return chain[0].NotAfter.UTC().Format(time.DateOnly)
}
