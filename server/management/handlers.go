package management

import (
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"postrider/catalog"
	"postrider/policy"
	"postrider/policy/filter"
	"postrider/server/api"
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

// problems are the mistakes in one request, with checks of the management operations.
type problems struct{ api.Problems }

// Merge adds the details of a rejection.
func (p *problems) Merge(err error) {
	var rejected *api.RejectionError
	if errors.As(err, &rejected) {
		p.Problems = append(p.Problems, rejected.Details...)
	}
}

func (p *problems) validation(mistakes []policy.ValidationError) {
	for i := range mistakes {
		p.Check(&mistakes[i])
	}
}
