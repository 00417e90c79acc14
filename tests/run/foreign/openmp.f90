! OpenMP regions of Fortran that GCC offloads.
program offloaded
  use omp_lib
  implicit none
  integer, parameter :: count = 3000
  real(8) :: x(count), y(count), total
  integer :: i
  logical :: here
  do i = 1, count
    x(i) = i
    y(i) = 2 * i
  end do
  total = 0
  here = .true.
  !$omp target teams distribute parallel do map(tofrom: y) map(to: x)
  do i = 1, count
    y(i) = y(i) + 0.5d0 * x(i)
  end do
  !$omp target parallel do map(to: y) map(tofrom: total) reduction(+: total)
  do i = 1, count
    total = total + y(i)
  end do
  !$omp target map(from: here)
  here = omp_is_initial_device()
  !$omp end target
  print '(A,L1,A,F0.1)', 'on the host: ', here, ', sum ', total
end program
