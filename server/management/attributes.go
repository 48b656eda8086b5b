package management

import (
	"context"
	"errors"
	"slices"

	"postrider/catalog"
	"postrider/policy"
	"postrider/postgres"
	"postrider/server/api"
)

// deliveryAttributes reads and judges custom headers. A secret that is to be kept is looked for here only so that one
// answer names all mistakes; the store looks again. Its error is the database's.
func (m *Handlers) deliveryAttributes(
	ctx context.Context, found *problems, topic, name string, given *[]api.DeliveryAttributeSettings,
) ([]policy.DeliveryAttribute, error) {
	list := attributesOf(optional(given, nil))
	var stored []policy.DeliveryAttribute
	if api.Storable(name) && slices.ContainsFunc(list, func(a policy.DeliveryAttribute) bool { return a.Withheld() }) {
		switch sub, err := m.Parts.Subscriptions.Get(ctx, topic, name); {
		case err == nil:
			stored = sub.DeliveryAttributes
		case !errors.Is(err, postgres.ErrNotFound):
			return nil, err
		}
	}
	mistakes := m.HeaderLimits.Mistakes(list, stored)
	for i := range mistakes {
		found.Check(&mistakes[i])
	}
	return list, nil
}

func attributesOf(given []api.DeliveryAttributeSettings) []policy.DeliveryAttribute {
	list := make([]policy.DeliveryAttribute, len(given))
	for i, a := range given {
		p := a.Properties
		list[i] = policy.DeliveryAttribute{
			Name: a.Name, Type: policy.DeliveryAttributeType(a.Type), AttributeProperties: policy.AttributeProperties{Value: p.Value, IsSecret: optional(p.IsSecret, false), SourceField: optional(p.SourceField, "")}, 
			
		}
	}
	return list
}

// statedAttributes are custom headers as they were put, secrets included.
func statedAttributes(list []policy.DeliveryAttribute) *[]api.DeliveryAttributeSettings {
	stated := make([]api.DeliveryAttributeSettings, len(list))
	for i, a := range list {
		stated[i].Name, stated[i].Type = a.Name, api.DeliveryAttributeType(a.Type)
		if a.Type == policy.AttributeDynamic {
			stated[i].Properties.SourceField = &a.SourceField
			continue
		}
		stated[i].Properties.Value, stated[i].Properties.IsSecret = a.Value, &a.IsSecret
	}
	return &stated
}

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
