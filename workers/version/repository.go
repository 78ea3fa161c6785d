// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/spokelet/spokelet/workers/store"
)

const (
	// parallel requests to the store for one script.
	parallel = 8
	// uploadGracePeriod is how old modules without a description are when nobody uploads them any
	// more.
	uploadGracePeriod = time.Hour
	// maxVersions is how many versions of a script are looked at, the newest, and maxFolders of
	// how many the modules are.
	maxVersions = 100
	maxFolders  = 1000
)

// ErrNotFound: there is no such version.
var ErrNotFound = errors.New("there is no such version")

// Objects is the object store. Its errors are those of package store.
type Objects interface {
	Put(ctx context.Context, prefix, key, mediaType string, content []byte) error
	// Read returns the first bytes of an object, limit at most.
	Read(ctx context.Context, prefix, key string, limit int64) ([]byte, error)
	// Names returns the last names of a folder, most at most.
	Names(ctx context.Context, prefix, folder string, most int) ([]string, error)
}

// Remover removes from the object store.
type Remover interface {
	Delete(ctx context.Context, prefix string, keys ...string) error
	DeleteFolder(ctx context.Context, prefix, folder string) error
}

// Repository is the versions of all accounts. It may be used by many at a time.
type Repository struct {
	objects Objects
	remover Remover
	bucket  string
}

// NewRepository returns the versions that are in a bucket of a store.
func NewRepository(objects Objects, remover Remover, bucket string) *Repository {
	return &Repository{objects: objects, remover: remover, bucket: bucket}
}

// Save stores a version with its modules. After an error there is no such version; what is
// left of it goes with [Repository.Prune].
func (r *Repository) Save(ctx context.Context, account string, v Version, files []File) error {
	v.Summarize(r.bucket, account, v.Script)
	raw, err := encode(v)
	if err != nil {
		return fmt.Errorf("version %s: %w", v.ID, err)
	}
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, file := range files {
		group.Go(func() error {
			return r.objects.Put(within, account, scriptFolder(account, v.Script.ScriptName)+"/"+v.ID+"/"+file.Name, file.Type, file.Content)
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("store version %s: %w", v.ID, err)
	}
	if err := r.objects.Put(ctx, descriptionPrefix, descriptionKey(account, v.Script.ScriptName, v.ID), "application/json", raw); err != nil {
		return fmt.Errorf("store version %s: %w", v.ID, err)
	}
	return nil
}

// Load returns a version, or [ErrNotFound].
func (r *Repository) Load(ctx context.Context, account, script, id string) (Version, error) {
	if !IsID(id) {
		return Version{}, fmt.Errorf("version %q: %w", id, ErrNotFound)
	}
	raw, err := r.readDescription(ctx, account, script, id, maxDescription+1)
	if err != nil {
		return Version{}, err
	}
	v, err := r.decode(raw, account, script, id)
	if err != nil {
		return Version{}, fmt.Errorf("version %s: %w", id, err)
	}
	return v, nil
}

// readDescription returns the first bytes of a description, or [ErrNotFound].
func (r *Repository) readDescription(ctx context.Context, account, script, id string, limit int64) ([]byte, error) {
	raw, err := r.objects.Read(ctx, descriptionPrefix, descriptionKey(account, script, id), limit)
	if errors.Is(err, store.ErrMissing) {
		return nil, fmt.Errorf("version %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read version %s: %w", id, err)
	}
	return raw, nil
}

// List returns what the newest versions of a script are, the newest first.
func (r *Repository) List(ctx context.Context, account, script string) ([]Summary, error) {
	ids, err := r.listVersionIDs(ctx, account, script)
	if err != nil {
		return nil, err
	}
	var (
		mu    sync.Mutex
		found []Summary
	)
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, id := range ids {
		group.Go(func() error {
			raw, err := r.readDescription(within, account, script, id, maxSummary)
			if errors.Is(err, ErrNotFound) {
				return nil // it was removed meanwhile
			}
			if err != nil {
				return err
			}
			s, err := decodeSummary(raw, id)
			if err != nil {
				return fmt.Errorf("version %s: %w", id, err)
			}
			mu.Lock()
			defer mu.Unlock()
			found = append(found, s)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b Summary) int { return strings.Compare(b.ID, a.ID) })
	return found, nil
}

// Latest returns the newest version of a script, or [ErrNotFound].
func (r *Repository) Latest(ctx context.Context, account, script string) (Version, error) {
	ids, err := r.listVersionIDs(ctx, account, script)
	if err != nil {
		return Version{}, err
	}
	if len(ids) == 0 {
		return Version{}, fmt.Errorf("script %s: %w", script, ErrNotFound)
	}
	return r.Load(ctx, account, script, ids[len(ids)-1])
}

// listVersionIDs returns those of the newest versions, the oldest first.
func (r *Repository) listVersionIDs(ctx context.Context, account, script string) ([]string, error) {
	return r.listIDs(ctx, descriptionPrefix, descriptionFolder(account, script), descriptionSuffix, maxVersions)
}

// listFolderIDs returns the ids of versions that have modules, the oldest first.
func (r *Repository) listFolderIDs(ctx context.Context, account, script string) ([]string, error) {
	return r.listIDs(ctx, account, scriptFolder(account, script), "/", maxFolders)
}

// listIDs returns the ids in the last names of a folder that end with a suffix.
func (r *Repository) listIDs(ctx context.Context, prefix, folder, suffix string, most int) ([]string, error) {
	names, err := r.objects.Names(ctx, prefix, folder, most)
	if err != nil {
		return nil, fmt.Errorf("versions of script %s: %w", path.Base(folder), err)
	}
	var ids []string
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, suffix); ok && IsID(id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Remove removes the description of a version. Its modules go with [Repository.Prune].
func (r *Repository) Remove(ctx context.Context, account, script, id string) error {
	if !IsID(id) {
		return fmt.Errorf("version %q: %w", id, ErrNotFound)
	}
	if err := r.remover.Delete(ctx, descriptionPrefix, descriptionKey(account, script, id)); err != nil {
		return fmt.Errorf("remove version %s: %w", id, err)
	}
	return nil
}

// Retention is what of a script must stay.
type Retention struct {
	// KeepVersions returns those of all versions, the newest first, that stay, by their ids. There
	// are none without it.
	KeepVersions func(all []Summary) sets.Set[string]
	// KeepFolders stay, by their ids.
	KeepFolders sets.Set[string]
	// KeepNewest is how many versions stay, whoever needs them.
	KeepNewest int
}

// Prune removes versions that nothing needs, modules that no version has, and what uploads
// have left that never ended. It returns the versions that are there afterwards, the newest
// first.
func (r *Repository) Prune(ctx context.Context, account, script string, needs Retention) ([]Summary, error) {
	all, err := r.List(ctx, account, script)
	if err != nil {
		return nil, err
	}
	var named sets.Set[string]
	if needs.KeepVersions != nil {
		named = needs.KeepVersions(all)
	}
	needed := needs.KeepFolders.Clone()
	var kept []Summary
	for i, v := range all {
		if i >= needs.KeepNewest && !named.Has(v.ID) {
			if err := r.Remove(ctx, account, script, v.ID); err != nil {
				return nil, err
			}
			continue
		}
		kept = append(kept, v)
		needed.Insert(v.Folders...)
	}
	if len(all) == maxVersions {
		return kept, nil // there may be more of them, with modules
	}
	folders, err := r.listFolderIDs(ctx, account, script)
	if err != nil {
		return nil, err
	}
	return kept, r.removeModules(ctx, account, script, slices.DeleteFunc(folders, func(id string) bool { return needed.Has(id) || isRecent(id) }))
}

func (r *Repository) removeModules(ctx context.Context, account, script string, ids []string) error {
	for _, id := range ids {
		if err := r.remover.DeleteFolder(ctx, account, scriptFolder(account, script)+"/"+id); err != nil {
			return fmt.Errorf("remove modules of version %s: %w", id, err)
		}
	}
	return nil
}

// isRecent tells whether modules may belong to a version that is being uploaded.
func isRecent(id string) bool {
	at, err := creationTime(id)
	return err != nil || time.Since(at) < uploadGracePeriod
}

// RemoveAll removes all versions of a script.
func (r *Repository) RemoveAll(ctx context.Context, account, script string) error {
	if err := r.remover.DeleteFolder(ctx, descriptionPrefix, descriptionFolder(account, script)); err != nil {
		return fmt.Errorf("remove versions of script %s: %w", script, err)
	}
	ids, err := r.listFolderIDs(ctx, account, script)
	if err != nil {
		return err
	}
	return r.removeModules(ctx, account, script, ids)
}
