package operator

import "context"

// OpenRelayCallback requests the callback that the handshake of a relay feed offered. ErrNotFound; ErrConflict: there
// is none that can be opened.
func (o *Operator) OpenRelayCallback(ctx context.Context, feed int64) error {
	const function = "SELECT postrider_internal.open_relay_callback($1, $2, $3)"
	_, err := call[string](ctx, o, "open the callback of a relay feed", function, feed)
	return err
}
