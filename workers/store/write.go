// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"
)

// Put stores an object below a prefix, which is the first segment of its key. After an error the
// object may exist.
func (s *Store) Put(ctx context.Context, prefix, key, mediaType string, content []byte) error {
	if err := checkPrefix(prefix, key); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	within, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	options := minio.PutObjectOptions{ContentType: mediaType, DisableMultipart: true}
	// A body of signed parts ends with one that is empty. versitygw 1.8 does not read it where
	// there is no other, and takes it for the next request of the connection.
	options.DisableContentSha256 = len(content) == 0
	_, err := s.client.Client.PutObject(within, s.config.Bucket, key, bytes.NewReader(content), int64(len(content)), options)
	if err != nil {
		return fmt.Errorf("%s: %w", key, classify(ctx, err))
	}
	return nil
}

// Read returns the first bytes of an object, limit at most.
func (s *Store) Read(ctx context.Context, prefix, key string, limit int64) ([]byte, error) {
	if err := checkPrefix(prefix, key); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	within, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	var options minio.GetObjectOptions
	if err := options.SetRange(0, limit-1); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	body, _, _, err := s.client.GetObject(within, s.config.Bucket, key, options)
	if minio.ToErrorResponse(err).StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return nil, nil // an empty object has no first byte
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, classify(ctx, err))
	}
	defer body.Close()
	content, err := io.ReadAll(io.LimitReader(body, limit)) // some stores know no ranges
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, classify(ctx, err))
	}
	return content, nil
}

// Names returns what there is directly below a folder: objects by their names, and folders
// by theirs with a slash. They are sorted, and the last ones are returned, most at most.
func (s *Store) Names(ctx context.Context, prefix, folder string, most int) ([]string, error) {
	var names []string
	err := s.forEachName(ctx, prefix, folder, false, func(_ context.Context, name string) error {
		if names = append(names, name); len(names) == 2*most {
			names = lastNames(names, most)
		}
		return nil
	})
	return lastNames(names, most), err
}

// lastNames sorts names and returns the last ones.
func lastNames(names []string, most int) []string {
	slices.Sort(names)
	return slices.Delete(names, 0, max(0, len(names)-most))
}

// Delete deletes objects, which may not exist.
func (s *Store) Delete(ctx context.Context, prefix string, keys ...string) error {
	within, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	for _, key := range keys {
		if err := checkPrefix(prefix, key); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if err := s.client.RemoveObject(within, s.config.Bucket, key, minio.RemoveObjectOptions{}); err != nil {
			return fmt.Errorf("%s: %w", key, classify(ctx, err))
		}
	}
	return nil
}

// DeleteFolder removes all objects below a folder, one after the other: their names may be more
// than there is memory for.
func (s *Store) DeleteFolder(ctx context.Context, prefix, folder string) error {
	return s.forEachName(ctx, prefix, folder, true, func(within context.Context, name string) error {
		return s.Delete(within, prefix, folder+"/"+name)
	})
}

// forEachName calls a function with the names below a folder, in order.
func (s *Store) forEachName(ctx context.Context, prefix, folder string, recursive bool, do func(ctx context.Context, name string) error) error {
	if err := checkPrefix(prefix, folder); err != nil {
		return fmt.Errorf("%s: %w", folder, err)
	}
	within, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	options := minio.ListObjectsOptions{Prefix: folder + "/", Recursive: recursive}
	for object := range s.client.ListObjectsIter(within, s.config.Bucket, options) {
		if object.Err != nil {
			return fmt.Errorf("%s: %w", folder, classify(ctx, object.Err))
		}
		name := strings.TrimPrefix(object.Key, folder+"/")
		if name == "" {
			continue
		}
		if err := do(within, name); err != nil {
			return err
		}
	}
	// The client ends a listing without an error when its context does.
	if err := within.Err(); err != nil {
		return fmt.Errorf("%s: %w", folder, classify(ctx, err))
	}
	return nil
}
