// Package cache keeps upstreams' answers and the finished replies that were made of
// them. The proxy asks it for each query: Packet finds a finished reply, Get an answer,
// Write and Put keep a new one. It bounds lifetimes and memory by the configuration, and
// counts hits for prefetching. It sends nothing, decides nothing and reads no clock: the
// caller tells the time.
package cache
