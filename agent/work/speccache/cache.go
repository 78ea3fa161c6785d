// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package speccache

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// copyShards divides the works, so that a change rewrites a part of them.
	copyShards = 16
	// maxPart is the content of one Secret in bytes; a Secret may have 1 MiB.
	maxPart = 900 << 10
	// quietTime without a change ends a burst, and maxBurst does in any case:
	// what is written while works arrive is written again and takes their time.
	quietTime = 2 * time.Second
	maxBurst  = 30 * time.Second

	// CopyLabel marks the Secrets of the cache.
	CopyLabel    = "spokelet.io/copy"
	digestMark   = "spokelet.io/digest"
	shardMark    = "spokelet.io/shard"
	partMark     = "spokelet.io/part"
	partKey      = "works"
	copyManager  = "spokelet-agent"
	copySecretOf = "spokelet-works-"
)

// retry paces the writes of the cache that fail.
var retry = wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Jitter: 1, Steps: math.MaxInt32, Cap: 15 * time.Second}

// errIncomplete: the parts of a shard are not of one write.
var errIncomplete = errors.New("copy of works was not written to its end")

// Cache writes what is wanted into Secrets of the agent's namespace, behind the
// work itself, and reads it back after a restart. It is a convenience for the
// time without a hub: what it lacks, or has too much, the hub's answer mends. A
// nil keeper keeps nothing.
type Cache struct {
	secrets typedcorev1.SecretInterface
	changed chan struct{}

	mu     sync.Mutex
	shards [copyShards]shard
}

// shard is a share of the works. Its fields are guarded by keeper.mu.
type shard struct {
	records map[string]cachedSpec
	isDirty bool
	// parts and digest are those that are stored.
	parts  int
	digest string
}

// cachedSpec is one work in the copy.
type cachedSpec struct {
	Key        string `json:"key"`
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	// Body is compressed once the record was written.
	Body         []byte `json:"body"`
	isCompressed bool
}

// NewCache keeps the works in a namespace; without one it returns nil.
func NewCache(cfg *rest.Config, namespace string) (*Cache, error) {
	if namespace == "" {
		return nil, nil
	}
	own := rest.CopyConfig(cfg)
	own.QPS, own.RateLimiter = -1, nil
	own.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := typedcorev1.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("client of the copy: %w", err)
	}
	return &Cache{secrets: client.Secrets(namespace), changed: make(chan struct{}, 1)}, nil
}

func shardOf(key string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // never fails
	return int(h.Sum32() % copyShards)
}

// Put keeps what the hub wants of a work.
func (k *Cache) Put(r resource.Resource) {
	if k == nil {
		return
	}
	k.update(r.Key, func(records map[string]cachedSpec) {
		records[r.Key] = cachedSpec{Key: r.Key, UID: r.UID, Generation: r.Generation, Body: r.Body}
	})
}

// Delete drops a work that is no more.
func (k *Cache) Delete(key string) {
	if k == nil {
		return
	}
	k.update(key, func(records map[string]cachedSpec) { delete(records, key) })
}

func (k *Cache) update(key string, do func(map[string]cachedSpec)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &k.shards[shardOf(key)]
	if s.records == nil {
		s.records = map[string]cachedSpec{}
	}
	do(s.records)
	s.isDirty = true
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// Run writes changed shards until ctx ends.
func (k *Cache) Run(ctx context.Context, log logr.Logger) {
	if k == nil {
		return
	}
	for {
		select {
		case <-k.changed:
		case <-ctx.Done():
			return
		}
		waitForQuiet(ctx, k.changed)
		_ = retry.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (done bool, _ error) {
			return k.flush(ctx, log) == nil, nil
		})
	}
}

// waitForQuiet returns at the end of a burst of changes.
func waitForQuiet(ctx context.Context, changes <-chan struct{}) {
	end := time.NewTimer(maxBurst)
	defer end.Stop()
	for {
		quiet := time.NewTimer(quietTime)
		select {
		case <-changes:
			quiet.Stop()
			continue
		case <-quiet.C:
		case <-end.C:
		case <-ctx.Done():
		}
		quiet.Stop()
		return
	}
}

func (k *Cache) flush(ctx context.Context, log logr.Logger) error {
	var failed error
	for i := range k.shards {
		if err := k.flushShard(ctx, i); err != nil && ctx.Err() == nil {
			log.Error(err, "cannot write the copy of works", "shard", i)
			failed = err
		}
	}
	return failed
}

func (k *Cache) flushShard(ctx context.Context, i int) error {
	blob, digest, before, err := k.encode(i)
	if err != nil || blob == nil {
		return err
	}
	parts := slices.Collect(slices.Chunk(blob, maxPart))
	for n, part := range parts {
		if err := k.write(ctx, i, n, part, digest); err != nil {
			k.markDirty(i)
			return err
		}
	}
	for n := len(parts); n < before; n++ {
		if err := k.secrets.Delete(ctx, secretName(i, n), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			k.markDirty(i)
			return fmt.Errorf("delete part: %w", err)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.shards[i].parts, k.shards[i].digest = len(parts), digest
	return nil
}

// encode returns the content of a shard that changed, nil when none did, and how
// many parts it had before.
func (k *Cache) encode(i int) (blob []byte, digest string, before int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &k.shards[i]
	if !s.isDirty {
		return nil, "", 0, nil
	}
	s.isDirty = false
	list := make([]cachedSpec, 0, len(s.records))
	zip := gzip.NewWriter(nil)
	for _, key := range slices.Sorted(maps.Keys(s.records)) {
		r := s.records[key]
		if !r.isCompressed {
			if r.Body, err = compress(zip, r.Body); err != nil {
				return nil, "", 0, err
			}
			r.isCompressed = true
			s.records[key] = r
		}
		list = append(list, r)
	}
	if blob, err = json.Marshal(list); err != nil {
		return nil, "", 0, fmt.Errorf("encode copy: %w", err)
	}
	sum := sha256.Sum256(blob)
	if digest = hex.EncodeToString(sum[:]); digest == s.digest {
		return nil, "", 0, nil
	}
	return blob, digest, s.parts, nil
}

func (k *Cache) markDirty(i int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.shards[i].isDirty = true
}

func (k *Cache) write(ctx context.Context, shard, part int, content []byte, digest string) error {
	s := applycorev1.Secret(secretName(shard, part), "").
		WithType("spokelet.io/works").
		WithLabels(map[string]string{CopyLabel: "works"}).
		WithAnnotations(map[string]string{digestMark: digest, shardMark: strconv.Itoa(shard), partMark: strconv.Itoa(part)}).
		WithData(map[string][]byte{partKey: content})
	s.Namespace = nil
	if _, err := k.secrets.Apply(ctx, s, metav1.ApplyOptions{FieldManager: copyManager, Force: true}); err != nil {
		return fmt.Errorf("write part: %w", err)
	}
	return nil
}

func secretName(shard, part int) string {
	return copySecretOf + strconv.Itoa(shard) + "-" + strconv.Itoa(part)
}

// Load returns the works that were kept. A shard that cannot be read is left out
// and named in the error.
func (k *Cache) Load(ctx context.Context) ([]resource.Resource, error) {
	if k == nil {
		return nil, nil
	}
	list, err := k.secrets.List(ctx, metav1.ListOptions{LabelSelector: CopyLabel + "=works"})
	if err != nil {
		return nil, fmt.Errorf("list copy: %w", err)
	}
	parts := map[int]map[int]*corev1.Secret{}
	for i := range list.Items {
		s := &list.Items[i]
		shard, err1 := strconv.Atoi(s.Annotations[shardMark])
		part, err2 := strconv.Atoi(s.Annotations[partMark])
		if err1 != nil || err2 != nil || shard < 0 || shard >= copyShards {
			continue
		}
		if parts[shard] == nil {
			parts[shard] = map[int]*corev1.Secret{}
		}
		parts[shard][part] = s
	}
	var out []resource.Resource
	var failed []error
	for _, i := range slices.Sorted(maps.Keys(parts)) {
		got, err := k.decode(i, parts[i])
		if err != nil {
			failed = append(failed, fmt.Errorf("shard %d: %w", i, err))
		}
		out = append(out, got...)
	}
	return out, errors.Join(failed...)
}

func (k *Cache) decode(i int, parts map[int]*corev1.Secret) ([]resource.Resource, error) {
	var blob []byte
	n := 0
	for ; parts[n] != nil; n++ {
		blob = append(blob, parts[n].Data[partKey]...)
	}
	sum := sha256.Sum256(blob)
	digest := hex.EncodeToString(sum[:])
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &k.shards[i]
	s.parts = len(parts)
	if n == 0 || parts[0].Annotations[digestMark] != digest {
		return nil, errIncomplete
	}
	var list []cachedSpec
	if err := json.Unmarshal(blob, &list); err != nil {
		return nil, fmt.Errorf("decode copy: %w", err)
	}
	if s.records == nil {
		s.records = map[string]cachedSpec{}
	}
	s.digest = digest
	var out []resource.Resource
	for _, r := range list {
		body, err := decompress(r.Body)
		if err != nil {
			return out, err
		}
		if _, newer := s.records[r.Key]; newer {
			continue // the hub was faster
		}
		r.isCompressed = true
		s.records[r.Key] = r
		out = append(out, resource.Resource{Key: r.Key, UID: r.UID, Generation: r.Generation, Body: body})
	}
	return out, nil
}

func compress(zip *gzip.Writer, body []byte) ([]byte, error) {
	var buf bytes.Buffer
	zip.Reset(&buf)
	if _, err := zip.Write(body); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if err := zip.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return buf.Bytes(), nil
}

// decompress reads no more than a body may have: the Secret may not be ours.
func decompress(compressed []byte) ([]byte, error) {
	zip, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, fmt.Errorf("expand: %w", err)
	}
	body, err := io.ReadAll(io.LimitReader(zip, resource.MaxBody+1))
	if err != nil {
		return nil, fmt.Errorf("expand: %w", err)
	}
	if len(body) > resource.MaxBody {
		return nil, fmt.Errorf("expand: %w", resource.ErrTooLarge)
	}
	return body, nil
}
