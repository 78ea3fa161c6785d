// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/spokelet/spokelet/workers/store"
)

const (
	// maxDescription bounds a description, in bytes: it has at most what a WorkerDeployment
	// may have.
	maxDescription = 2 << 20
	// parallel requests to the store for one script.
	parallel = 8
	// abandoned is how old modules without a description are when nobody uploads them any
	// more.
	abandoned = time.Hour
)

// ErrNotFound: there is no such version.
var ErrNotFound = errors.New("there is no such version")

// Objects is the object store. Its errors are those of package store.
type Objects interface {
	Put(ctx context.Context, account, key, mediaType string, content []byte) error
	Read(ctx context.Context, account, key string, limit int64) ([]byte, error)
	Names(ctx context.Context, account, folder string) ([]string, error)
}

// Remover removes from the object store.
type Remover interface {
	Delete(ctx context.Context, account string, keys ...string) error
	DeleteFolder(ctx context.Context, account, folder string) error
}

// Repository is the versions of all accounts. It may be used by many at a time.
type Repository struct {
	objects Objects
	remover Remover
}

// NewRepository returns the versions that are in a store.
func NewRepository(objects Objects, remover Remover) *Repository {
	return &Repository{objects: objects, remover: remover}
}

// Save stores a version with its modules. After an error there is no such version; what is
// left of it goes with [Repository.Prune].
func (r *Repository) Save(ctx context.Context, account string, v Version, files []File) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("version %s: %w", v.ID, err)
	}
	if len(raw) > maxDescription {
		return fmt.Errorf("version %s: %w: its settings have %d bytes, and the limit is %d", v.ID, store.ErrTooLarge, len(raw), maxDescription)
	}
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, file := range files {
		group.Go(func() error {
			return r.objects.Put(within, account, folder(account, v.Script.ScriptName)+"/"+v.ID+"/"+file.Name, file.Type, file.Content)
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("store version %s: %w", v.ID, err)
	}
	if err := r.objects.Put(ctx, account, key(account, v.Script.ScriptName, v.ID), "application/json", raw); err != nil {
		return fmt.Errorf("store version %s: %w", v.ID, err)
	}
	return nil
}

// Load returns a version, or [ErrNotFound].
func (r *Repository) Load(ctx context.Context, account, script, id string) (Version, error) {
	if !IsID(id) {
		return Version{}, fmt.Errorf("version %q: %w", id, ErrNotFound)
	}
	raw, err := r.objects.Read(ctx, account, key(account, script, id), maxDescription)
	if errors.Is(err, store.ErrMissing) {
		return Version{}, fmt.Errorf("version %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return Version{}, fmt.Errorf("read version %s: %w", id, err)
	}
	var v Version
	if err := json.Unmarshal(raw, &v); err != nil {
		return Version{}, fmt.Errorf("version %s: what is stored is no description: %w", id, err)
	}
	return v, nil
}

// List returns the versions of a script, the newest first.
func (r *Repository) List(ctx context.Context, account, script string) ([]Version, error) {
	ids, _, err := r.stored(ctx, account, script)
	if err != nil {
		return nil, err
	}
	return r.load(ctx, account, script, ids)
}

// load returns those of the versions that are there, the newest first.
func (r *Repository) load(ctx context.Context, account, script string, ids []string) ([]Version, error) {
	var (
		mu    sync.Mutex
		found []Version
	)
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, id := range ids {
		group.Go(func() error {
			v, err := r.Load(within, account, script, id)
			if errors.Is(err, ErrNotFound) {
				return nil // it was removed meanwhile
			}
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			found = append(found, v)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b Version) int { return strings.Compare(b.ID, a.ID) })
	return found, nil
}

// Latest returns the newest version of a script, or [ErrNotFound].
func (r *Repository) Latest(ctx context.Context, account, script string) (Version, error) {
	ids, _, err := r.stored(ctx, account, script)
	if err != nil {
		return Version{}, err
	}
	if len(ids) == 0 {
		return Version{}, fmt.Errorf("script %s: %w", script, ErrNotFound)
	}
	return r.Load(ctx, account, script, ids[len(ids)-1])
}

// stored returns the ids of descriptions and of folders with modules, the oldest first.
func (r *Repository) stored(ctx context.Context, account, script string) (ids, folders []string, err error) {
	names, err := r.objects.Names(ctx, account, folder(account, script))
	if err != nil {
		return nil, nil, fmt.Errorf("versions of script %s: %w", script, err)
	}
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, suffix); ok && IsID(id) {
			ids = append(ids, id)
		}
		if id, ok := strings.CutSuffix(name, "/"); ok && IsID(id) {
			folders = append(folders, id)
		}
	}
	return ids, folders, nil
}

// Remove removes the description of a version. Its modules go with [Repository.Prune].
func (r *Repository) Remove(ctx context.Context, account, script, id string) error {
	if !IsID(id) {
		return fmt.Errorf("version %q: %w", id, ErrNotFound)
	}
	if err := r.remover.Delete(ctx, account, key(account, script, id)); err != nil {
		return fmt.Errorf("remove version %s: %w", id, err)
	}
	return nil
}

// Needs is what of a script must stay.
type Needs struct {
	// Versions returns those of all versions, the newest first, that stay, by their ids. There
	// are none without it.
	Versions func(all []Version) sets.Set[string]
	// Folders stay, by their ids.
	Folders sets.Set[string]
	// Newest is how many versions stay, whoever needs them.
	Newest int
}

// Prune removes versions that nothing needs, modules that no version has, and what uploads
// have left that never ended. It returns the versions that are there afterwards, the newest
// first.
func (r *Repository) Prune(ctx context.Context, account, script, bucket string, needs Needs) ([]Version, error) {
	ids, folders, err := r.stored(ctx, account, script)
	if err != nil {
		return nil, err
	}
	all, err := r.load(ctx, account, script, ids)
	if err != nil {
		return nil, err
	}
	var named sets.Set[string]
	if needs.Versions != nil {
		named = needs.Versions(all)
	}
	needed := needs.Folders.Clone()
	var kept []Version
	for i, v := range all {
		if i >= needs.Newest && !named.Has(v.ID) {
			if err := r.Remove(ctx, account, script, v.ID); err != nil {
				return nil, err
			}
			continue
		}
		kept = append(kept, v)
		needed.Insert(Folders(bucket, account, v.Script)...)
	}
	for _, id := range folders {
		if needed.Has(id) || young(id) {
			continue
		}
		if err := r.remover.DeleteFolder(ctx, account, folder(account, script)+"/"+id); err != nil {
			return nil, fmt.Errorf("remove modules of version %s: %w", id, err)
		}
	}
	return kept, nil
}

// young tells whether modules may belong to a version that is being uploaded.
func young(id string) bool {
	at, err := timeOf(id)
	return err != nil || time.Since(at) < abandoned
}

// RemoveAll removes all versions of a script.
func (r *Repository) RemoveAll(ctx context.Context, account, script string) error {
	ids, folders, err := r.stored(ctx, account, script)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := r.Remove(ctx, account, script, id); err != nil {
			return err
		}
	}
	for _, id := range folders {
		if err := r.remover.DeleteFolder(ctx, account, folder(account, script)+"/"+id); err != nil {
			return fmt.Errorf("remove modules of version %s: %w", id, err)
		}
	}
	return nil
}
