package catalog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
)

func TestRateString(t *testing.T) {
	t.Parallel()
	for want, rate := range map[string]catalog.Rate{
		"the rate limit of 50 requests/s":           {Key: "subscription:1", Step: 20 * time.Millisecond},
		"the rate limit of 12500 events/s":          {Key: "subscription:1", Step: 80 * time.Microsecond, PerEvent: true},
		"the rate limit of 30 requests/min":         {Key: "subscription:1", Step: 2 * time.Second},
		"the rate limit of 2 requests/h":            {Key: "subscription:1", Step: 30 * time.Minute},
		"the rate limit of its host, 1 request/day": {Key: "host:a.example.com", Step: 24 * time.Hour},
	} {
		require.Equal(t, want, rate.String())
		require.Contains(t, want, " "+rate.Amount())
	}
}
