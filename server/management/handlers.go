package management

import (
	"log/slog"
	"net/netip"
	"time"

	"postrider/catalog"
	"postrider/policy"
	"postrider/policy/filter"
)

// Handlers respond to the requests under /v1.
type Handlers struct {
	Parts        Parts
	Allow        []netip.Prefix
	AllowHTTP    bool
	FilterLimits filter.Limits
	HeaderLimits policy.HeaderLimits
	Locations    policy.ExportLocations
	// The rest is as in Options of package server.
	DefaultValidation func(host string) catalog.EndpointValidation
	ValidationWait    time.Duration
	NoSignIn          bool
	Log               *slog.Logger
}
