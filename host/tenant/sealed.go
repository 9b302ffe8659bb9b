package tenant

import "context"

const purposeHost = "host:"

// Seal encrypts what a host keeps of a tenant in tables of its own, with a key for
// that purpose alone. It opens only with the same binding: what it is and where it
// belongs. Once the tenant is erased, nobody can open it.
func (s *Store) Seal(ctx context.Context, tenant, purpose string, text []byte, binding ...string) ([]byte, error) {
	sub, err := s.hostKey(ctx, tenant, purpose)
	if err != nil {
		return nil, err
	}
	return seal(sub, text, binding...)
}

// Unseal is the inverse of Seal.
func (s *Store) Unseal(ctx context.Context, tenant, purpose string, sealed []byte, binding ...string) ([]byte, error) {
	sub, err := s.hostKey(ctx, tenant, purpose)
	if err != nil {
		return nil, err
	}
	return unseal(sub, sealed, binding...)
}

func (s *Store) hostKey(ctx context.Context, tenant, purpose string) ([]byte, error) {
	key, err := s.DataKey(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return key.Subkey(purposeHost + purpose)
}
