package catalog

import (
	"encoding/json"
	"fmt"

	"postrider/policy"
)

const connectionColumn = "event_subscriptions.connection_sealed"

// sealConnection returns a connection's settings, and its sealed secrets; nil (NULL) for none of either.
func (r records) sealConnection(column string, c *policy.Connection) (open *policy.Connection, sealed []byte) {
	shown, secrets := c.Split()
	if shown == (policy.Connection{}) {
		return nil, nil
	}
	if secrets == (policy.ConnectionSecrets{}) {
		return &shown, nil
	}
	text, _ := json.Marshal(secrets) //nolint:gosec // to be sealed; strings can always be written
	return &shown, r.sealer.Seal(column, string(text))
}

func (r records) openConnection(
	column string, open *policy.Connection, sealed []byte,
) (c policy.Connection, err error) {
	if open == nil {
		return c, nil
	}
	c = *open
	if sealed == nil {
		return c, nil
	}
	text, err := r.sealer.Open(column, sealed)
	if err != nil {
		return c, err
	}
	var secrets policy.ConnectionSecrets
	if err := json.Unmarshal([]byte(text), &secrets); err != nil {
		return c, fmt.Errorf("read the secrets of its connection: %w", err)
	}
	c.Join(secrets)
	return c, nil
}

// keepConnection is keepAttributes for the secrets of the connection.
func keepConnection(given policy.Connection, existing *Subscription) (policy.Connection, error) {
	if existing == nil {
		return policy.KeepConnectionSecrets(given, nil)
	}
	return policy.KeepConnectionSecrets(given, &existing.Connection)
}
