package management

import (
	"postrider/catalog"
	"postrider/policy"
	"postrider/server/api"
)

// deadLetterDestination judges the setting of that name. What is stored of a location has no query: how it is reached
// is the operator's to say.
func (m *Handlers) deadLetterDestination(
	found *problems, b *api.DeadLetterDestination,
) (catalog.DeadLetterDestination, *policy.DeadLetterProperties) {
	if b == nil {
		return catalog.DeadLetterUnset, nil
	}
	kind := catalog.DeadLetterDestination(b.EndpointType)
	switch {
	case !b.EndpointType.Valid():
		found.Value("deadLetterDestination.endpointType", "must be %s, %s, %s or %s", catalog.DeadLetterRows,
			catalog.DeadLetterNone, catalog.DeadLetterBlob, catalog.DeadLetterStorageBlob)
		return kind, nil
	case !kind.Outside():
		if b.Properties != nil {
			found.Value("deadLetterDestination.properties", "must be left out: %s has none", kind)
		}
		return kind, nil
	case b.Properties == nil:
		found.Value("deadLetterDestination.properties", "is required for %s", kind)
		return kind, nil
	}
	p := policy.DeadLetterProperties{
		URL: optional(b.Properties.Url, ""), Prefix: optional(b.Properties.Prefix, ""),
		ResourceID: optional(b.Properties.ResourceId, ""), BlobContainerName: optional(b.Properties.BlobContainerName, ""),
	}
	switch azure, named := p.ResourceID != "" || p.BlobContainerName != "", p.URL != "" || p.Prefix != ""; {
	case kind == catalog.DeadLetterBlob && (azure || p.URL == ""):
		found.Value("deadLetterDestination.properties", "must be url, and perhaps prefix, of %s", kind)
		return kind, nil
	case kind == catalog.DeadLetterStorageBlob && (named || p.ResourceID == ""):
		found.Value("deadLetterDestination.properties", "must be resourceId and blobContainerName of %s", kind)
		return kind, nil
	}
	if _, err := m.Locations.Resolve(p); err != nil {
		found.Check(err)
		return kind, nil
	}
	if location, err := policy.ParseLocation(p.URL); err == nil {
		p.URL = location.String()
	}
	return kind, &p
}

// destinationJSON shows where dead letters go; nothing of it is a secret.
func destinationJSON(kind catalog.DeadLetterDestination, p *policy.DeadLetterProperties) api.DeadLetterDestination {
	shown := api.DeadLetterDestination{EndpointType: api.DeadLetterDestinationEndpointType(kind)}
	if p != nil {
		shown.Properties = &api.DeadLetterProperties{
			Url: textOrNull(p.URL), Prefix: textOrNull(p.Prefix), ResourceId: textOrNull(p.ResourceID),
			BlobContainerName: textOrNull(p.BlobContainerName),
		}
	}
	return shown
}
