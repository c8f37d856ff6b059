package control

import "context"

// Tick does now what Run does each second.
func (s *Service) Tick(ctx context.Context) {
	s.tick(ctx)
	s.looks.Wait()
}
