package main

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/cmd/postrider/terminal"
	"postrider/policy"
	"postrider/query"
)

// judgedHosts is how many hosts of stored endpoints are judged, those of the most event subscriptions first: a name may
// take seconds to resolve.
const judgedHosts = 50

// judgeStored judges the hosts of the endpoints that are stored, as far as their addresses go: none is connected to.
// What is refused is a warning: the service may have been given other flags than this doctor.
func judgeStored(ctx context.Context, found *findings, pool *pgxpool.Pool, out egressFlags) {
	const check = "egress"
	stored, err := query.ReadEndpointHosts(ctx, pool, judgedHosts)
	switch {
	case err != nil:
		found.warn(check, fmt.Sprintf("the stored endpoints cannot be read: %v", err), "look at PostgreSQL's log")
		return
	case len(stored.Hosts) == 0:
		found.ok(check, "no event subscription has an endpoint yet")
		return
	}
	good := 0
	for i, one := range judgeHosts(ctx, stored.Hosts, out) {
		h := stored.Hosts[i]
		for _, f := range one {
			found.warn(check,
				fmt.Sprintf("of %s, such as %s: %s", terminal.Plural(h.Subscriptions, "event subscription"), h.Example, f.Says),
				f.Remedy+"; if the service has other flags, give them here too")
		}
		if len(one) == 0 {
			good++
		}
	}
	if good > 0 {
		found.ok(check, "%s of stored endpoints may be called%s", terminal.Plural(good, "host"),
			terminal.Either(out.DeliveryProxy == "", "", " as far as their URLs go: where their names lead, the proxy decides"))
	}
	if left := stored.All - len(stored.Hosts); left > 0 {
		found.warn(check,
			fmt.Sprintf("%s of stored endpoints, those of the fewest event subscriptions, were not looked at",
				terminal.Plural(left, "further host")), "judge one of them with --endpoint")
	}
}

// judgeHosts judges all of them at once, so that slow names take no longer than one; of each it tells what is wrong.
func judgeHosts(ctx context.Context, hosts []query.EndpointHost, out egressFlags) []findings {
	wrong := make([]findings, len(hosts))
	var judges sync.WaitGroup
	for i := range hosts {
		judges.Go(func() { _, _, _ = judgeAddresses(ctx, &wrong[i], hosts[i].URL, out) })
	}
	judges.Wait()
	return wrong
}

// judgeAddresses judges an endpoint by its URL and the addresses of its name, as the service does when it calls one.
// may is whether it may be called; open are the addresses that may, none where a proxy looks the name up.
func judgeAddresses(
	ctx context.Context, found *findings, endpoint string, out egressFlags,
) (u *url.URL, open []netip.Addr, may bool) {
	const check = "egress"
	u, err := policy.EndpointURL(endpoint, out.AllowCIDR)
	if err == nil && !out.AllowHTTP {
		err = policy.PlainEndpoint(u, out.AllowCIDR)
	}
	if err == nil && out.DeliveryProxy != "" {
		err = policy.ProxiedPort(u)
	}
	if err != nil {
		found.fail(check, fmt.Sprintf("the endpoint: %v", err), egressRemedy(u))
		return u, nil, false
	}
	if out.DeliveryProxy != "" {
		return u, nil, true
	}
	host := policy.BaseURL(u)
	addresses, err := lookUp(ctx, u.Hostname())
	if err != nil {
		found.fail(check, fmt.Sprintf("%s: %v", host, err),
			"mend the name, or this machine's resolver: attempts end as ResolutionError")
		return u, nil, false
	}
	open, refused := out.judge(u, addresses)
	if len(open) == 0 {
		found.fail(check, host+": "+strings.Join(refused, "; "), egressRemedy(u))
		return u, nil, false
	}
	if len(refused) > 0 {
		found.warn(check,
			fmt.Sprintf("%s: of %s, %s", host, terminal.Plural(len(addresses), "address"), strings.Join(refused, "; ")),
			"attempts that meet these addresses fail: mend the name, or open the range with --allow-cidr")
	}
	return u, open, true
}
