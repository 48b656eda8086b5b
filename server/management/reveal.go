package management

import (
	"context"

	"postrider/catalog"
)

// FullURL is the endpoint of an event subscription with its query.
type FullURL struct {
	EndpointURL string `json:"endpointUrl"`
}

// DeliveryAttributeList are the custom headers of an event subscription with their secret values.
type DeliveryAttributeList struct {
	Value []DeliveryAttributeView `json:"value"`
}

// RevealSubscriptionEndpoint responds to POST /v1/topics/{topic}/subscriptions/{subscription}/getFullUrl.
func (m *Handlers) RevealSubscriptionEndpoint(ctx context.Context, r *SubscriptionPath) (*FullURL, error) {
	sub, err := m.reveal(ctx, r, "the endpoint of an event subscription was shown in full",
		m.Parts.Subscriptions.RevealEndpoint)
	if err != nil {
		return nil, err
	}
	return &FullURL{sub.EndpointURL}, nil
}

// RevealSubscriptionHeaders responds to POST /v1/topics/{topic}/subscriptions/{subscription}/getDeliveryAttributes.
func (m *Handlers) RevealSubscriptionHeaders(
	ctx context.Context, r *SubscriptionPath,
) (*DeliveryAttributeList, error) {
	sub, err := m.reveal(ctx, r, "secret headers of an event subscription were shown",
		m.Parts.Subscriptions.RevealDeliveryAttributes)
	if err != nil {
		return nil, err
	}
	return &DeliveryAttributeList{attributesView(sub.DeliveryAttributes, true)}, nil
}

// reveal reads an event subscription whose secrets are shown, and logs that.
func (m *Handlers) reveal(
	ctx context.Context, r *SubscriptionPath, what string,
	read func(ctx context.Context, topic, name string) (*catalog.Subscription, error),
) (*catalog.Subscription, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	sub, err := read(ctx, r.Topic, r.Subscription)
	if err == nil {
		m.logSecret(ctx, what, "topic", r.Topic, "subscription", r.Subscription)
	}
	return sub, r.rejected(err)
}
