package management

import (
	"context"
	"errors"

	"postrider/catalog"
	"postrider/policy"
	"postrider/postgres"
	"postrider/server/api"
)

// attributesJSON shows custom headers; secrets only where they are revealed.
func attributesJSON(list []policy.DeliveryAttribute, reveal bool) []api.DeliveryAttribute {
	shown := make([]api.DeliveryAttribute, len(list))
	for i, a := range list {
		shown[i] = api.DeliveryAttribute{Name: a.Name, Type: api.DeliveryAttributeType(a.Type)}
		if a.Type == policy.AttributeDynamic {
			shown[i].Properties = api.DynamicDeliveryAttribute{SourceField: a.SourceField}
			continue
		}
		properties := api.StaticDeliveryAttribute{IsSecret: a.IsSecret}
		if reveal || !a.IsSecret {
			properties.Value = a.Value
		}
		shown[i].Properties = properties
	}
	return shown
}

// RevealSubscriptionEndpoint answers POST /v1/topics/{topic}/subscriptions/{subscription}/getFullUrl.
func (m *Handlers) RevealSubscriptionEndpoint(
	ctx context.Context, r api.RevealSubscriptionEndpointRequestObject,
) (api.RevealSubscriptionEndpointResponseObject, error) {
	sub, err := reveal(ctx, r.Topic, r.Subscription, m.Parts.Subscriptions.RevealEndpoint)
	if err != nil {
		return nil, err
	}
	return api.RevealSubscriptionEndpoint200JSONResponse{EndpointUrl: sub.EndpointURL}, nil
}

// RevealSubscriptionHeaders answers POST /v1/topics/{topic}/subscriptions/{subscription}/getDeliveryAttributes.
func (m *Handlers) RevealSubscriptionHeaders(
	ctx context.Context, r api.RevealSubscriptionHeadersRequestObject,
) (api.RevealSubscriptionHeadersResponseObject, error) {
	sub, err := reveal(ctx, r.Topic, r.Subscription, m.Parts.Subscriptions.RevealDeliveryAttributes)
	if err != nil {
		return nil, err
	}
	return api.RevealSubscriptionHeaders200JSONResponse{Value: attributesJSON(sub.DeliveryAttributes, true)}, nil
}

func reveal(
	ctx context.Context, topic, name string,
	ask func(ctx context.Context, topic, name string) (*catalog.Subscription, error),
) (*catalog.Subscription, error) {
	if !api.Storable(topic) || !api.Storable(name) {
		return nil, api.SubscriptionNotFound(topic, name)
	}
	sub, err := ask(ctx, topic, name)
	if errors.Is(err, postgres.ErrNotFound) {
		return nil, api.SubscriptionNotFound(topic, name)
	}
	return sub, err
}
