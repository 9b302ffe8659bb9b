package tenant

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/internal/lists"
)

// wrappedKey is a row of tenant_data_key.
type wrappedKey struct {
	tenant, id, master string
	wrapped            []byte
}

// newDataKey creates and stores the data key of a tenant. It is wrapped with the master key of the
// other data keys or, if there are none, with the first of the store. If another data key is
// wrapped with a master key that the store lacks, it creates none, so that a process with only the
// old master key adds nothing after a rewrap.
func (s *Store) newDataKey(tx eventlog.Tx, tenant string) error {
	used, err := masters(tx)
	if err != nil {
		return err
	}
	var to MasterKey
	if held := *s.masters.Load(); len(held) > 0 {
		to = held[0]
	}
	for _, u := range used {
		if to, err = s.master(u.tenant, u.ID); err != nil {
			return err
		}
	}
	secret := make([]byte, store.DataKeySize)
	_, _ = rand.Read(secret) // never fails
	key, err := store.NewDataKey(secret)
	if err != nil {
		return err
	}
	w := wrappedKey{tenant: tenant, id: key.ID()}
	if err := w.wrap(to, key); err != nil {
		return err
	}
	_, err = tx.Exec(`INSERT INTO tenant_data_key (tenant, id, master, wrapped, created) VALUES ($1, $2, $3, $4, $5)`,
		w.tenant, w.id, w.master, w.wrapped, s.now().UnixNano())
	return err
}

// wrap puts the data key under a master key. It is bound to its tenant and to its
// id, so that write access to the database is not enough to give one tenant the key of
// another.
func (w *wrappedKey) wrap(m MasterKey, key store.DataKey) error {
	wrapping, err := m.wrapping()
	if err != nil {
		return err
	}
	w.master, w.wrapped = m.ID(), encrypt(wrapping, key.Bytes(), "data key", w.tenant, w.id)
	return nil
}

func (s *Store) unwrap(w wrappedKey) (store.DataKey, error) {
	m, err := s.master(w.tenant, w.master)
	if err != nil {
		return store.DataKey{}, err
	}
	wrapping, err := m.wrapping()
	if err != nil {
		return store.DataKey{}, err
	}
	secret, err := decrypt(wrapping, w.wrapped, "data key", w.tenant, w.id)
	if err != nil {
		return store.DataKey{}, fmt.Errorf("data key of %q: %w", w.tenant, err)
	}
	return store.NewDataKey(secret)
}

// DataKey returns the key that the tenant's runs are encrypted with: [ErrErased]
// once it was destroyed. Keeping the key keeps the data readable, so a copy must
// not outlive its use.
func (s *Store) DataKey(ctx context.Context, tenant string) (store.DataKey, error) {
	return eventlog.View(ctx, s.db, func(q eventlog.Querier) (store.DataKey, error) { return s.dataKey(q, tenant) })
}

func (s *Store) dataKey(q eventlog.Querier, tenant string) (store.DataKey, error) {
	w := wrappedKey{tenant: tenant}
	found, err := eventlog.QueryOne(q, "SELECT id, master, wrapped FROM tenant_data_key WHERE tenant = $1", []any{tenant}, &w.id, &w.master, &w.wrapped)
	if err != nil {
		return store.DataKey{}, err
	}
	if !found {
		if err := needTenant(q, tenant); err != nil {
			return store.DataKey{}, err
		}
		return store.DataKey{}, notFound("data key of", tenant)
	}
	return s.unwrap(w)
}

// DataKeyIDs returns the id of each tenant's data key by that of the tenant; it is empty
// of a tenant that was erased. It needs no master key.
func (s *Store) DataKeyIDs(ctx context.Context) (ids map[string]string, err error) {
	ids = map[string]string{}
	err = s.db.View(ctx, func(q eventlog.Querier) error {
		const all = "SELECT tenant.id, coalesce(tenant_data_key.id, '') FROM tenant LEFT JOIN tenant_data_key ON tenant_data_key.tenant = tenant.id"
		return q.Query(all, nil, func(r eventlog.Row) error {
			var of, key string
			err := r.Scan(&of, &key)
			ids[of] = key
			return err
		})
	})
	return ids, err
}

// subkey returns the key for one kind of encrypted data beside runs.
func (s *Store) subkey(q eventlog.Querier, tenant, purpose string) ([]byte, error) {
	key, err := s.dataKey(q, tenant)
	if err != nil {
		return nil, err
	}
	return key.Subkey(purpose)
}

// master returns the master key of that id, which a tenant's data key is under.
func (s *Store) master(tenant, id string) (MasterKey, error) {
	held := *s.masters.Load()
	if len(held) == 0 {
		return MasterKey{}, ErrNoMasterKey
	}
	for _, m := range held {
		if m.ID() == id {
			return m, nil
		}
	}
	return MasterKey{}, fmt.Errorf("%w: the data key of %q is under master key %.64q, this is %s", ErrWrongMasterKey, tenant, id, strings.Join(s.MasterKeys(), " and "))
}

// MasterKeys returns the ids of the master keys that the store has.
func (s *Store) MasterKeys() []string { return lists.Map(*s.masters.Load(), MasterKey.ID) }

// UseMasters replaces the store's master keys. If a data key is under another master key,
// the error is [ErrWrongMasterKey] and nothing changes.
func (s *Store) UseMasters(ctx context.Context, keys ...MasterKey) error {
	next := &Store{db: s.db}
	next.masters.Store(&keys)
	if err := next.CheckMaster(ctx); err != nil {
		return err
	}
	s.masters.Store(&keys)
	return nil
}

// MasterUse is a master key that data keys are under.
type MasterUse struct {
	ID       string
	DataKeys int
	tenant   string // one tenant under it
}

// MasterUses returns the master keys that data keys are under, by id. It needs no master key.
func (s *Store) MasterUses(ctx context.Context) ([]MasterUse, error) {
	return eventlog.View(ctx, s.db, masters)
}

func masters(q eventlog.Querier) ([]MasterUse, error) {
	const all = "SELECT master, count(*), min(tenant) FROM tenant_data_key GROUP BY master ORDER BY master"
	return eventlog.QueryAll(q, all, nil, eventlog.Columns(func(u *MasterUse) []any { return []any{&u.ID, &u.DataKeys, &u.tenant} }))
}

// CheckMaster opens one data key under each master key in use. It returns
// [ErrWrongMasterKey] once another process has put them under a master key that the
// store lacks.
func (s *Store) CheckMaster(ctx context.Context) error {
	return s.db.View(ctx, func(q eventlog.Querier) error {
		used, err := masters(q)
		for _, u := range used {
			if err == nil {
				_, err = s.dataKey(q, u.tenant)
			}
		}
		return err
	})
}

// Rewrap encrypts the data keys of all tenants, or of none, with another master key, and returns
// their number. Data keys already under that key are not changed. Afterwards the other master keys
// open only older copies of the database; destroying these keys makes the copies unreadable. Stores
// without the new key cannot open any data key, see [Store.UseMasters].
func (s *Store) Rewrap(ctx context.Context, to MasterKey) (n int, err error) {
	err = s.db.Transact(ctx, func(tx eventlog.Tx) error {
		const all = "SELECT tenant, id, master, wrapped FROM tenant_data_key ORDER BY tenant"
		keys, err := eventlog.QueryAll(tx, all, nil, eventlog.Columns(func(w *wrappedKey) []any { return []any{&w.tenant, &w.id, &w.master, &w.wrapped} }))
		if err != nil {
			return err
		}
		n = len(keys)
		for _, w := range keys {
			if w.master == to.ID() {
				continue
			}
			key, err := s.unwrap(w)
			if err != nil {
				return err
			}
			if err := w.wrap(to, key); err != nil {
				return err
			}
			s := statements{tx: tx}
			s.exec("UPDATE tenant_data_key SET master = $2, wrapped = $3 WHERE tenant = $1", w.tenant, w.master, w.wrapped)
			if err := s.raise(w.tenant); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

var errNotDecrypted = errors.New("tenant: the stored value cannot be decrypted: it was changed, or belongs elsewhere")

const purposeHost = "host:"

// Encrypt encrypts a tenant's data in the host's own tables, with a key for that
// purpose alone. It opens only with the same binding: its purpose and its place.
// Once the tenant is erased, only a process that has read its holdings before can
// open it.
func (h Holdings) Encrypt(purpose string, text []byte, binding ...string) ([]byte, error) {
	sub, err := h.Key.Subkey(purposeHost + purpose)
	if err != nil {
		return nil, err
	}
	return encrypt(sub, text, binding...), nil
}

// Decrypt is the inverse of Encrypt.
func (h Holdings) Decrypt(purpose string, encrypted []byte, binding ...string) ([]byte, error) {
	sub, err := h.Key.Subkey(purposeHost + purpose)
	if err != nil {
		return nil, err
	}
	return decrypt(sub, encrypted, binding...)
}

// encrypt encrypts text with AES-256-GCM under a random nonce, which stands before
// the result. It opens only with the same key and the same binding: its purpose
// and its place.
func encrypt(key, text []byte, binding ...string) []byte {
	return aead(key).Seal(nil, nil, text, bind(binding))
}

// decrypt is the inverse of encrypt.
func decrypt(key, encrypted []byte, binding ...string) ([]byte, error) {
	text, err := aead(key).Open(nil, nil, encrypted, bind(binding))
	if err != nil {
		return nil, errNotDecrypted
	}
	return text, nil
}

func aead(key []byte) cipher.AEAD {
	block, _ := aes.NewCipher(key) // every key here has the right length
	a, _ := cipher.NewGCMWithRandomNonce(block)
	return a
}

// bind joins parts so that no two lists of parts give the same bytes: each part is
// quoted.
func bind(parts []string) []byte {
	var b strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&b, "%q\n", p)
	}
	return []byte(b.String())
}

const (
	masterSize   = 32
	masterPrefix = "sthm_" // before the 64 hexadecimal digits, so that a scanner for secrets knows it
	labelMaster  = "starling-host master key id 1\x00"
	labelWrap    = "starling-host wrapping key 1\x00"
)

// MasterKey wraps the data keys of all tenants. Printing it shows its id. The
// secret is behind a function, which no printing looks into. The zero value is
// not a key.
type MasterKey struct{ of func() *master }

type master struct {
	secret [masterSize]byte
	id     string
}

// NewMasterKey makes a random master key.
func NewMasterKey() MasterKey {
	var secret [masterSize]byte
	_, _ = rand.Read(secret[:]) // never fails
	return masterFrom(secret)
}

// maxMasterKeys is how many master keys a file may have.
const maxMasterKeys = 4

// ParseMasterKeys reads one to four master keys, each as [MasterKey.Text] has written it:
// "sthm_" and 64 hexadecimal digits. White space stands between them. Its errors do not quote
// them.
func ParseMasterKeys(text []byte) (keys []MasterKey, err error) {
	words := bytes.Fields(text)
	if len(words) == 0 {
		words = [][]byte{nil} // not a key
	}
	for _, word := range words {
		digits, ok := bytes.CutPrefix(word, []byte(masterPrefix))
		var secret [masterSize]byte
		if !ok || len(digits) != hex.EncodedLen(masterSize) {
			return nil, fmt.Errorf("%w: a master key is %q and %d hexadecimal digits", ErrInvalid, masterPrefix, hex.EncodedLen(masterSize))
		}
		if _, err := hex.Decode(secret[:], digits); err != nil {
			return nil, fmt.Errorf("%w: the master key has a character that is not a hexadecimal digit", ErrInvalid)
		}
		k := masterFrom(secret)
		if !slices.ContainsFunc(keys, func(other MasterKey) bool { return other.ID() == k.ID() }) {
			keys = append(keys, k)
		}
	}
	if len(keys) > maxMasterKeys {
		return nil, fmt.Errorf("%w: there are %d master keys; at most %d are allowed", ErrInvalid, len(keys), maxMasterKeys)
	}
	return keys, nil
}

func masterFrom(secret [masterSize]byte) MasterKey {
	m := &master{secret: secret}
	m.id = hex.EncodeToString(m.derive(labelMaster, 16))
	return MasterKey{func() *master { return m }}
}

// derive returns a key that is derived from the secret for one purpose.
func (m *master) derive(label string, size int) []byte {
	key, err := hkdf.Key(sha256.New, m.secret[:], nil, label, size)
	if err != nil {
		panic(err) // the sizes are constants
	}
	return key
}

// ReadMasterKeys reads the master keys of a file, see [ParseMasterKeys]. A file that others
// than its owner may read or write is refused: [ErrInvalid], and a [*keyfile.NotPrivateError].
func ReadMasterKeys(path string) ([]MasterKey, error) {
	const what = "master key file"
	text, err := keyfile.Read(what, path)
	if errors.As(err, new(*fs.PathError)) {
		return nil, fmt.Errorf("tenant: master key: %w", err)
	}
	if err != nil {
		return nil, refusedFile{err}
	}
	keys, err := ParseMasterKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", what, path, err)
	}
	return keys, nil
}

// refusedFile is the error for a file that does not hold a master key.
type refusedFile struct{ error }

// Unwrap returns [ErrInvalid] and the reason.
func (e refusedFile) Unwrap() []error { return []error{ErrInvalid, e.error} }

// CreateMasterKey makes a random master key and writes it to a new file, see
// [keyfile.Create]: the data keys that another one in that place wraps would be lost.
func CreateMasterKey(path string) (MasterKey, error) {
	k := NewMasterKey()
	if err := keyfile.Create(path, []byte(k.Text().Reveal()+"\n")); err != nil {
		return MasterKey{}, fmt.Errorf("tenant: master key: %w", err)
	}
	return k, nil
}

// ID names the key and reveals nothing about it. It is empty for the zero MasterKey.
func (k MasterKey) ID() string {
	if k.of == nil {
		return ""
	}
	return k.of().id
}

// String returns the id of the key.
func (k MasterKey) String() string { return "master key " + k.ID() }

// GoString returns the id of the key.
func (k MasterKey) GoString() string { return k.String() }

// Text returns the key in the form that [ParseMasterKeys] reads.
func (k MasterKey) Text() Value {
	if k.of == nil {
		return Value{}
	}
	return NewValue(masterPrefix + hex.EncodeToString(k.of().secret[:]))
}

// wrapping returns the key that wraps data keys.
func (k MasterKey) wrapping() ([]byte, error) {
	if k.of == nil {
		return nil, ErrNoMasterKey
	}
	return k.of().derive(labelWrap, masterSize), nil
}

// MasterKeyVariable has the master key where there is no file, as in a container
// that is handed its secrets so.
const MasterKeyVariable = "STARLING_MASTER_KEY"

// MasterKeys reads the master keys from a file, or from the environment if no
// file is named; there may be none.
func MasterKeys(file string) ([]MasterKey, error) {
	if file != "" {
		return ReadMasterKeys(file)
	}
	text := os.Getenv(MasterKeyVariable)
	if text == "" {
		return nil, nil
	}
	keys, err := ParseMasterKeys([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", MasterKeyVariable, err)
	}
	return keys, nil
}
