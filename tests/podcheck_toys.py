"""What the tests of the pod check's counts share."""

SIZES = {"data": 2, "tensor": 4}  # of the mesh that the programs are said to be for


def flops(found):
  return sum(r.times * r.flops for r in found.rows)
